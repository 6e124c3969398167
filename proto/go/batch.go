package pequod

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	pb "pequod/v1"
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

func (b *Batch) add(kind byte, numbers []uint64, arguments ...[]byte) {
	if kind == kindPutTTL && numbers[0] == 0 {
		kind, numbers = kindPut, nil
	}
	b.commands = append(b.commands, command{kind, arguments, numbers, b.level})
}

// deadline returns the time to live of a put as commands have it, 0 for ever; what is wrong with it, Run says.
func (b *Batch) deadline(options *PutOptions) uint64 {
	number, err := options.number()
	b.err = errors.Join(b.err, err)
	return number
}

func (b *Batch) milliseconds(ttl time.Duration) uint64 {
	number, err := milliseconds(ttl)
	b.err = errors.Join(b.err, err)
	return number
}

// At says how fresh the answers to the reads are that are added from now on.
func (b *Batch) At(level Freshness) { b.level = level.level }

// Scan reads the rows of a range.
func (b *Batch) Scan(over Range, options *ScanOptions) {
	first, last := over.bounds()
	switch {
	case options == nil || options.Limit == 0 && !options.Reverse:
		b.add(kindScan, nil, first, last)
	case options.Limit < 0:
		b.add(kindScan, nil, first, first)
	case options.Reverse:
		b.add(kindScanDown, []uint64{uint64(options.Limit)}, first, last)
	default:
		b.add(kindScanLimit, []uint64{uint64(options.Limit)}, first, last)
	}
}

// one runs a command by itself.
func (c *Client) one(ctx context.Context, add func(*Batch)) (Result, error) {
	var batch Batch
	add(&batch)
	results, err := c.Run(ctx, &batch)
	if err != nil {
		return Result{}, err
	}
	return results[0], results[0].Err
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
	r := &run{client: c, commands: batch.commands, results: make([]Result, len(batch.commands))}
	if c.options.Retries > 0 && slices.ContainsFunc(r.commands, func(one command) bool { return isDecided(one.kind) }) {
		r.id = requestID(12)
	}
	if len(known.nodes) == 1 {
		if failed = r.part(ctx, counted(0, len(r.commands))); failed != nil {
			return nil, failed
		}
		return r.results, nil
	}
	for start, end := 0, 0; start < len(r.commands); start = end {
		for end < len(r.commands) && isWrite(r.commands[end].kind) == isWrite(r.commands[start].kind) {
			end++
		}
		var parts sync.WaitGroup
		for _, part := range divided(known, counted(start, end), r.route) {
			parts.Go(func() { r.part(ctx, part) })
		}
		parts.Wait()
	}
	return r.results, nil
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
	if one := &r.commands[at]; isWrite(one.kind) {
		return writes(one.arguments[0])
	}
	return reads(r.commands[at].arguments[0])
}

// care returns what may be done with some commands whose outcome is not known.
func (r *run) care(positions []int) care {
	found := reading
	for _, at := range positions {
		one := &r.commands[at]
		switch {
		case isWrite(one.kind) && (r.id == nil || !isDecided(one.kind)):
			return once
		case isWrite(one.kind) || one.level.GetLatest() || r.client.level.GetLatest():
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
		var again []int
		var refused error
		for _, at := range left {
			r.results[at] = next(r.commands[at].kind, reply)
			e, isError := r.results[at].Err.(*Error)
			if isError && (e.Reason == ReasonNotHome || care == reading && e.isUnloaded()) {
				again, refused = append(again, at), e
			}
		}
		left = again
		return refused
	})
	if failed == nil || failed.Reason == ReasonNotHome || failed.isUnloaded() {
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
		if one.level != nil && !isWrite(one.kind) {
			request.FreshCommands = append(request.FreshCommands, uint32(number))
			request.FreshLevels = append(request.FreshLevels, r.client.added(one.level))
		}
		if r.id != nil && len(positions) < len(r.commands) {
			request.BatchPositions = append(request.BatchPositions, uint32(at))
		}
	}
	return request
}

// take takes the next one from a column of a reply.
func take[T any](column *[]T) (found T) {
	if len(*column) > 0 {
		found, *column = (*column)[0], (*column)[1:]
	}
	return found
}

func takeRows(from *pb.ExecuteReply) []Row {
	count := min(take(&from.Counts), uint64(len(from.Keys)), uint64(len(from.Values)))
	rows := rowsOf(from.Keys[:count], from.Values[:count])
	from.Keys, from.Values = from.Keys[count:], from.Values[count:]
	return rows
}

// next takes the result of a command of a kind from the columns of a reply.
func next(kind byte, from *pb.ExecuteReply) (result Result) {
	if len(from.Statuses) == 0 {
		return Result{Err: refusal(codes.Internal, "", "the reply has no status of a command")}
	}
	status := take(&from.Statuses)
	for ; status == statusPart; status = take(&from.Statuses) {
		result.take(kind, status, from)
	}
	if status == statusFailed {
		e := take(&from.Errors)
		return Result{Err: &Error{Code: codes.Code(e.GetCode()), Reason: Reason(e.GetReason()), Message: e.GetMessage(), Facts: e.GetFacts()}}
	}
	result.Found = status != statusAbsent
	result.take(kind, status, from)
	return result
}
