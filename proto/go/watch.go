package pequod

import (
	"cmp"
	"context"
	"iter"
	"time"

	pb "pequod/v1"
)

// WatchOptions are settings of a watch; nil stands for the zero value.
type WatchOptions struct {
	// Rows has the first event hold the rows of the range.
	Rows bool
	// Progress has an event come after each such time without changes.
	Progress time.Duration
	// Reconnect is how long the watch tries to reach a server again: 0 is 30 s.
	Reconnect time.Duration
	// After continues after an event of an earlier watch of the range.
	After *Event
}

// Event is what happened in a watched range up to a revision.
type Event struct {
	ServerID, Revision uint64
	Token              Token
	Rows               []Row
	Changes            []Change
}

// Change is a key's value before and after, nil where there is none.
type Change struct {
	Key      string
	Old, New []byte
	// Expired says that the key's deadline has come.
	Expired bool
}

// watch is a watch on its way over interruptions.
type watch struct {
	client  *Client
	request *pb.WatchRequest
	yield   func(*Event, error) bool
	// heard is when the latest event came, zero before the first; broken is what interrupted the watch after it.
	heard  time.Time
	broken *Error
	// isOver says that the caller has enough.
	isOver bool
}

// Watch yields what happens in a range: first an event as soon as the watch stands, then one for each change of its rows
// or several. It goes on after an interruption without a gap. An error is the last that it yields: after
// WatchCompactedError, which comes if the server has gone for good, begin anew, with the rows.
func (c *Client) Watch(ctx context.Context, over Range, options *WatchOptions) iter.Seq2[*Event, error] {
	if options == nil {
		options = &WatchOptions{}
	}
	return func(yield func(*Event, error) bool) {
		w := &watch{client: c, yield: yield}
		w.request = &pb.WatchRequest{
			Rows: options.Rows, Freshness: c.added(c.level), ProgressMs: uint32(options.Progress.Milliseconds()),
		}
		w.request.First, w.request.Last = over.bounds()
		if options.After != nil {
			w.request.After = &pb.Header{ServerId: options.After.ServerID, Revision: options.After.Revision}
		}
		reconnect := cmp.Or(options.Reconnect, 30*time.Second)
		for {
			failed := cmp.Or(c.run(ctx, reads(string(w.request.First)), following, w.follow), w.broken)
			if w.isOver {
				return
			}
			if failed.Reason != ReasonUnavailable || time.Since(w.heard) > reconnect || !wait(ctx, pause(1)) {
				yield(nil, failed)
				return
			}
		}
	}
}

// follow yields the events of one server. Where there were some, an interruption is no failure.
func (w *watch) follow(ctx context.Context, n *node) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(w.client.options.Timeout, func() { cancel(errorOf(ctx, context.DeadlineExceeded)) })
	defer late.Stop()
	stream, err := n.stub.Watch(ctx, w.request)
	isReady, isAgain, begun := false, !w.heard.IsZero(), w.heard
	event := &Event{}
	if w.request.Rows {
		event.Rows = []Row{}
	}
	for err == nil {
		var reply *pb.WatchReply
		if reply, err = stream.Recv(); err != nil {
			break
		}
		event.Rows = append(event.Rows, rowsOf(reply.Keys, reply.Values)...)
		if isReady = isReady || reply.Ready; !isReady {
			continue
		}
		late.Stop()
		event.take(reply)
		w.client.seen.note(reply.Header.Token)
		w.request.Rows, w.request.Freshness = false, nil
		w.request.After = &pb.Header{ServerId: event.ServerID, Revision: event.Revision}
		w.heard = time.Now()
		// The watch that goes on has told nothing yet.
		if !(isAgain && reply.Ready) && !w.yield(event, nil) {
			w.isOver = true
			return nil
		}
		event = &Event{}
	}
	w.broken = errorOf(ctx, err)
	if w.broken.Reason == ReasonUnavailable && w.heard != begun {
		return nil
	}
	return w.broken
}

func (e *Event) take(reply *pb.WatchReply) {
	e.ServerID, e.Revision, e.Token = reply.Header.ServerId, reply.Header.Revision, Token{string(reply.Header.Token)}
	for _, one := range reply.Changes {
		e.Changes = append(e.Changes, Change{string(one.Key), one.Old, one.New, one.Reason == pb.Change_EXPIRED})
	}
}
