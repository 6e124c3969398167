package pequod

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	pb "pequod/v1"
)

// The kinds of commands that a batch has, as the contract numbers them.
const (
	kindGet = iota + 1
	kindPut
	kindRemove
	kindScan
	kindScanLimit
	kindScanDown
	kindCount
	kindPutIf
	kindRemoveIf
	kindAdd
	kindPutTTL
	kindExpire
	kindTTL
)

// The statuses of commands in a reply.
const (
	statusAbsent = iota + 1
	statusFailed
	statusPart
	statusUnmet
)

// Batch is commands that go out together, and run in their order; one that fails does not stop the others. The zero value
// is an empty batch.
type Batch struct {
	commands []command
	level    *pb.Freshness
	err      error
}

type command struct {
	kind      byte
	arguments [][]byte
	numbers   []uint64
	level     *pb.Freshness
}

func (c command) isWrite() bool {
	switch c.kind {
	case kindGet, kindScan, kindScanLimit, kindScanDown, kindCount, kindTTL:
		return false
	}
	return true
}

// hasID returns whether the command is done once though it is sent twice.
func (c command) hasID() bool {
	return c.kind == kindPutIf || c.kind == kindRemoveIf || c.kind == kindAdd
}

// Result is that of a command.
type Result struct {
	// Value is that of Get, nil if the key is absent; the sum of Add; the present value if a condition was not met.
	Value []byte
	// Found says of Remove and Expire that the key was there, of TTL that it is.
	Found bool
	// Met says that a condition held.
	Met   bool
	Rows  []Row
	Count uint64
	TTL   time.Duration
	// Err is an *Error: the command failed.
	Err error
}

func (b *Batch) add(kind byte, arguments [][]byte, numbers ...uint64) {
	b.commands = append(b.commands, command{kind, arguments, numbers, b.level})
}

func key(key string, more ...[]byte) [][]byte { return append([][]byte{[]byte(key)}, more...) }

// At says how fresh the answers to the reads are that are added from now on.
func (b *Batch) At(level Freshness) { b.level = level.level }

// Get reads a value.
func (b *Batch) Get(of string) { b.add(kindGet, key(of)) }

// Put writes a base key.
func (b *Batch) Put(to string, value []byte, options *PutOptions) {
	ttl, err := options.number()
	b.err = errors.Join(b.err, err)
	if ttl == 0 {
		b.add(kindPut, key(to, value))
	} else {
		b.add(kindPutTTL, key(to, value), ttl)
	}
}

// PutIf writes a base key if a condition is met.
func (b *Batch) PutIf(to string, value []byte, condition Condition, options *PutOptions) {
	ttl, err := options.number()
	b.err = errors.Join(b.err, err)
	b.add(kindPutIf, key(to, value, condition.expected), uint64(condition.number), ttl)
}

// Remove removes a base key.
func (b *Batch) Remove(one string) { b.add(kindRemove, key(one)) }

// RemoveIf removes a base key if a condition is met.
func (b *Batch) RemoveIf(one string, condition Condition) {
	b.add(kindRemoveIf, key(one, condition.expected), uint64(condition.number))
}

// Add adds a decimal to the value of a base key.
func (b *Batch) Add(to, delta string) { b.add(kindAdd, key(to, []byte(delta))) }

// Expire has a base key expire after some time.
func (b *Batch) Expire(one string, ttl time.Duration) {
	number, err := milliseconds(ttl)
	b.err = errors.Join(b.err, err)
	b.add(kindExpire, key(one), number)
}

// Persist has a base key live for ever.
func (b *Batch) Persist(one string) { b.add(kindExpire, key(one), 0) }

// TTL asks how long a key lives from now on.
func (b *Batch) TTL(of string) { b.add(kindTTL, key(of)) }

// Count counts the keys of a range.
func (b *Batch) Count(over Range) {
	first, last := over.bounds()
	b.add(kindCount, [][]byte{first, last})
}

// Scan reads the rows of a range.
func (b *Batch) Scan(over Range, options *ScanOptions) {
	first, last := over.bounds()
	switch {
	case options == nil || options.Limit == 0 && !options.Reverse:
		b.add(kindScan, [][]byte{first, last})
	case options.Limit < 0:
		b.add(kindScan, [][]byte{first, first})
	case options.Reverse:
		b.add(kindScanDown, [][]byte{first, last}, uint64(options.Limit))
	default:
		b.add(kindScanLimit, [][]byte{first, last}, uint64(options.Limit))
	}
}

// Run sends a batch, and returns the result of each command. The commands of one server run in their order; in a cluster
// those that write and those that read go in turns, so that reads follow the writes before them.
func (c *Client) Run(ctx context.Context, batch *Batch) ([]Result, error) {
	if batch.err != nil || len(batch.commands) == 0 {
		return nil, batch.err
	}
	ctx, cancel := c.limited(ctx)
	defer cancel()
	known, failed := c.known(ctx)
	if failed != nil {
		return nil, failed
	}
	run := &run{client: c, commands: batch.commands, results: make([]Result, len(batch.commands))}
	if c.options.Retries > 0 && slices.ContainsFunc(run.commands, command.hasID) {
		run.id = requestID(12)
	}
	if len(known.nodes) == 1 {
		if failed = run.part(ctx, counted(0, len(run.commands))); failed != nil {
			return nil, failed
		}
		return run.results, nil
	}
	for start, end := 0, 0; start < len(run.commands); start = end {
		isWrite := run.commands[start].isWrite()
		for end < len(run.commands) && run.commands[end].isWrite() == isWrite {
			end++
		}
		var parts sync.WaitGroup
		for _, part := range divided(known, counted(start, end), run.route) {
			parts.Go(func() { run.part(ctx, part) })
		}
		parts.Wait()
	}
	return run.results, nil
}

func counted(start, end int) []int {
	found := make([]int, 0, end-start)
	for at := start; at < end; at++ {
		found = append(found, at)
	}
	return found
}

// divided returns the positions of each server's part of what has routes.
func divided(r *routes, positions []int, of func(int) route) map[*node][]int {
	parts := map[*node][]int{}
	for _, at := range positions {
		var best *node
		if nodes := of(at)(r); len(nodes) > 0 {
			best = nodes[0]
		}
		parts[best] = append(parts[best], at)
	}
	return parts
}

// run is a batch on its way.
type run struct {
	client   *Client
	commands []command
	results  []Result
	// id is that of the batch, and with its position that of a command which is done once; nil for none.
	id []byte
}

func (r *run) route(at int) route {
	if one := &r.commands[at]; one.isWrite() {
		return writes(string(one.arguments[0]))
	}
	return reads(string(r.commands[at].arguments[0]))
}

// care returns what may be done with some commands whose outcome is not known.
func (r *run) care(positions []int) care {
	found := reading
	for _, at := range positions {
		one := &r.commands[at]
		switch {
		case one.isWrite() && (r.id == nil || !one.hasID()):
			return once
		case one.isWrite() || one.level.GetLatest() || r.client.level.GetLatest():
			found = harmless
		}
	}
	return found
}

// part runs commands at one server, and those that it refuses at others; it returns why there are no results.
func (r *run) part(ctx context.Context, left []int) *Error {
	care := r.care(left)
	failed := r.client.run(ctx, r.route(left[0]), care, func(ctx context.Context, n *node) error {
		reply, err := n.execute(ctx, r.request(left))
		if err != nil {
			return err
		}
		r.client.seen.note(reply.Token)
		d := &decoder{statuses: reply.Statuses, keys: reply.Keys, values: reply.Values, counts: reply.Counts, errors: reply.Errors}
		var again []int
		var refused error
		for _, at := range left {
			r.results[at] = d.next(r.commands[at].kind)
			e, ok := r.results[at].Err.(*Error)
			if ok && (e.Reason == ReasonNotHome || care == reading && isUnloaded(e)) {
				again, refused = append(again, at), e
			}
		}
		left = again
		return refused
	})
	if failed == nil || failed.Reason == ReasonNotHome || isUnloaded(failed) {
		return nil
	}
	for _, at := range left {
		r.results[at] = Result{Err: failed}
	}
	return failed
}

// request returns commands as columns.
func (r *run) request(positions []int) *pb.ExecuteRequest {
	request := &pb.ExecuteRequest{Freshness: r.client.added(r.client.level), BatchId: r.id}
	for number, at := range positions {
		one := &r.commands[at]
		request.Kinds = append(request.Kinds, one.kind)
		request.Arguments = append(request.Arguments, one.arguments...)
		request.Numbers = append(request.Numbers, one.numbers...)
		if one.level != nil && !one.isWrite() {
			request.FreshCommands = append(request.FreshCommands, uint32(number))
			request.FreshLevels = append(request.FreshLevels, r.client.added(one.level))
		}
		if r.id != nil && len(positions) < len(r.commands) {
			request.BatchPositions = append(request.BatchPositions, uint32(at))
		}
	}
	return request
}

// decoder takes the columns of a reply apart.
type decoder struct {
	statuses     []byte
	keys, values [][]byte
	counts       []uint64
	errors       []*pb.CommandError
}

func take[T any](column *[]T) (found T) {
	if len(*column) > 0 {
		found, *column = (*column)[0], (*column)[1:]
	}
	return found
}

func (d *decoder) rows(count uint64) []Row {
	rows := make([]Row, 0, min(count, uint64(len(d.keys))))
	for range count {
		rows = append(rows, Row{string(take(&d.keys)), there(take(&d.values))})
	}
	return rows
}

func (d *decoder) next(kind byte) (result Result) {
	if len(d.statuses) == 0 {
		return Result{Err: refusal(codes.Internal, "", "the reply has no status of a command")}
	}
	status := take(&d.statuses)
	for ; status == statusPart; status = take(&d.statuses) {
		result.Rows = append(result.Rows, d.rows(take(&d.counts))...)
	}
	if status == statusFailed {
		e := take(&d.errors)
		return Result{Err: &Error{Code: codes.Code(e.GetCode()), Reason: Reason(e.GetReason()), Message: e.GetMessage(), Facts: e.GetFacts()}}
	}
	result.Found = status != statusAbsent
	switch kind {
	case kindScan, kindScanLimit, kindScanDown:
		result.Rows = append(result.Rows, d.rows(take(&d.counts))...)
	case kindCount:
		result.Count = take(&d.counts)
	case kindPutIf, kindRemoveIf:
		if result.Met = status == 0; status == statusUnmet {
			result.Value = there(take(&d.values))
		}
	case kindGet, kindAdd:
		if result.Found {
			result.Value = there(take(&d.values))
		}
	case kindTTL:
		if result.Found {
			result.TTL = lives(take(&d.counts))
		}
	}
	return result
}

// stream is a live call of Execute, which one batch has at a time: a stream for each batch would triple what a get takes.
type stream struct {
	pb.Pequod_ExecuteClient
	cancel context.CancelFunc
	number uint64
}

// idleMax is how many streams wait for batches.
const idleMax = 16

func (n *node) stream() (*stream, error) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	if last := len(n.streams) - 1; last >= 0 {
		found := n.streams[last]
		n.streams = n.streams[:last]
		return found, nil
	}
	ctx, cancel := context.WithCancel(n.life)
	made, err := n.stub.Execute(ctx)
	if err != nil {
		cancel()
		return nil, err
	}
	return &stream{made, cancel, 0}, nil
}

// execute runs a batch, and returns its reply in one piece.
func (n *node) execute(ctx context.Context, request *pb.ExecuteRequest) (*pb.ExecuteReply, error) {
	s, err := n.stream()
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, s.cancel)
	reply, err := s.exchange(request)
	n.mutex.Lock()
	defer n.mutex.Unlock()
	if stop() && err == nil && len(n.streams) < idleMax {
		n.streams = append(n.streams, s)
	} else {
		s.cancel()
	}
	return reply, err
}

func (s *stream) exchange(request *pb.ExecuteRequest) (*pb.ExecuteReply, error) {
	s.number++
	request.Batch = s.number
	if err := s.Send(request); err != nil {
		isUnsent := errors.Is(err, io.EOF)
		if isUnsent {
			// The stream has ended before; Recv says why.
			_, err = s.Recv()
		}
		failed := errorOf(s.Context(), err)
		failed.Unapplied = isUnsent
		return nil, failed
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
