package pequod

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/proto"

	pb "pequod/v1"
)

// stream is a live call of Execute, which one batch has at a time: a stream for each batch would triple what a get takes.
type stream struct {
	pb.Pequod_ExecuteClient
	cancel context.CancelFunc
	number uint64
}

// idleMax is how many streams of a server wait for batches.
const idleMax = 16

// stream returns a stream that waits, or a new one: it outlives the call that makes it.
func (n *node) stream(ctx context.Context) (*stream, error) {
	select {
	case waiting := <-n.idle:
		return waiting, nil
	default:
	}
	life, cancel := context.WithCancel(context.Background())
	defer context.AfterFunc(ctx, cancel)()
	made, err := n.stub.Execute(life)
	if err != nil {
		cancel()
		return nil, sent(ctx, err, false)
	}
	return &stream{made, cancel, 0}, nil
}

// execute runs a batch, and returns its reply in one piece.
func (n *node) execute(ctx context.Context, request *pb.ExecuteRequest) (*pb.ExecuteReply, error) {
	s, err := n.stream(ctx)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, s.cancel)
	reply, err := s.exchange(ctx, request)
	if !stop() || err != nil {
		s.cancel()
		return reply, err
	}
	select {
	case n.idle <- s:
	default:
		s.cancel()
	}
	return reply, nil
}

func (s *stream) exchange(ctx context.Context, request *pb.ExecuteRequest) (*pb.ExecuteReply, error) {
	s.number++
	request.Batch = s.number
	if err := s.Send(request); err != nil {
		isUnsent := errors.Is(err, io.EOF)
		if isUnsent {
			// The stream has ended before; Recv says why.
			_, err = s.Recv()
		}
		return nil, sent(ctx, err, !isUnsent)
	}
	whole, err := s.Recv()
	for more := whole; err == nil && more.More; {
		if more, err = s.Recv(); err == nil {
			statuses := append(whole.Statuses, more.Statuses...)
			token := Token{string(whole.Token)}.Merge(Token{string(more.Token)})
			proto.Merge(whole, more)
			whole.Statuses, whole.Token = statuses, []byte(token.raw)
		}
	}
	if err == nil && whole.Batch != s.number {
		err = fmt.Errorf("the server replied to batch %d of a stream before batch %d", whole.Batch, s.number)
	}
	return whole, err
}
