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
	commands []*command
	level    *pb.Freshness
	err      error
}

// command is one of a batch, at a position in it.
type command struct {
	at        int
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
	b.commands = append(b.commands, &command{len(b.commands), kind, arguments, numbers, b.level})
}

// number notes an error of a number, for Run to return.
func (b *Batch) number(number uint64, err error) uint64 {
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

// columns returns commands as columns.
func columns(commands []*command) *pb.CommandColumns {
	found := &pb.CommandColumns{Kinds: make([]byte, len(commands)), Arguments: make([][]byte, 0, 2*len(commands))}
	for number, one := range commands {
		found.Kinds[number] = one.kind
		found.Arguments, found.Numbers = append(found.Arguments, one.arguments...), append(found.Numbers, one.numbers...)
	}
	return found
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

// run is a batch on its way.
type run struct {
	client  *Client
	results []Result
	// id is that of the batch, and with its position that of a command which is done once; nil for none.
	id []byte
}

// Run sends a batch, and returns the result of each command. The commands of one server run in their order; in a cluster
// those that write and those that read go in turns, so that reads follow the writes before them.
func (c *Client) Run(ctx context.Context, batch *Batch) ([]Result, error) {
	left := batch.commands
	if batch.err != nil || len(left) == 0 {
		return nil, batch.err
	}
	ctx, cancel := c.limited(ctx)
	defer cancel()
	known, failed := c.known(ctx)
	if failed != nil {
		return nil, failed
	}
	r := &run{client: c, results: make([]Result, len(left))}
	if c.options.Retries > 0 && slices.ContainsFunc(left, func(one *command) bool { return isDecided(one.kind) }) {
		r.id = requestID(12)
	}
	if len(known.nodes) == 1 {
		if failed = r.part(ctx, left); failed != nil {
			return nil, failed
		}
		return r.results, nil
	}
	for len(left) > 0 {
		end := slices.IndexFunc(left, func(one *command) bool { return isWrite(one.kind) != isWrite(left[0].kind) })
		if end < 0 {
			end = len(left)
		}
		var parts sync.WaitGroup
		for _, part := range divided(known, left[:end], (*command).route) {
			parts.Go(func() { r.part(ctx, part) })
		}
		parts.Wait()
		left = left[end:]
	}
	return r.results, nil
}

// divided returns each server's part of what has routes.
func divided[T any](r *routes, all []T, routeOf func(T) route) map[*node][]T {
	if len(r.nodes) == 1 {
		return map[*node][]T{nil: all}
	}
	parts := map[*node][]T{}
	for _, one := range all {
		var best *node
		if nodes := routeOf(one)(r); len(nodes) > 0 {
			best = nodes[0]
		}
		parts[best] = append(parts[best], one)
	}
	return parts
}

func (one *command) route() route {
	if isWrite(one.kind) {
		return writes(string(one.arguments[0]))
	}
	return reads(string(one.arguments[0]))
}

// care returns what may be done with some commands whose outcome is not known.
func (r *run) care(part []*command) care {
	found := reading
	for _, one := range part {
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
func (r *run) part(ctx context.Context, left []*command) *Error {
	care := r.care(left)
	failed := r.client.run(ctx, left[0].route(), care, func(ctx context.Context, n *node) error {
		reply, err := n.execute(ctx, r.request(left))
		if err != nil {
			return err
		}
		r.client.seen.note(reply.Token)
		var again []*command
		var refused error
		for _, one := range left {
			r.results[one.at] = next(one.kind, reply)
			e, isError := r.results[one.at].Err.(*Error)
			if isError && (e.Reason == ReasonNotHome || care.isRead && e.isUnloaded()) {
				again, refused = append(again, one), e
			}
		}
		left = again
		return refused
	})
	if failed == nil || failed.Reason == ReasonNotHome || failed.isUnloaded() {
		return nil
	}
	for _, one := range left {
		r.results[one.at] = Result{Err: failed}
	}
	return failed
}

func (r *run) request(part []*command) *pb.ExecuteRequest {
	all := columns(part)
	request := &pb.ExecuteRequest{Kinds: all.Kinds, Arguments: all.Arguments, Numbers: all.Numbers, BatchId: r.id}
	request.Freshness = r.client.added(r.client.level)
	for number, one := range part {
		if one.level != nil && !isWrite(one.kind) {
			request.FreshCommands = append(request.FreshCommands, uint32(number))
			request.FreshLevels = append(request.FreshLevels, r.client.added(one.level))
		}
		if r.id != nil && len(part) < len(r.results) {
			request.BatchPositions = append(request.BatchPositions, uint32(one.at))
		}
	}
	return request
}

// Compare is what the value of a base key has to be in a transaction.
type Compare struct {
	key      string
	operator byte
	value    []byte
}

// Transaction runs Then if all of If hold, and otherwise Else, at one revision, all or none.
type Transaction struct {
	If         []Compare
	Then, Else Batch
}

// Transact runs a transaction; it returns whether all compares held, and the results of the commands that ran.
func (c *Client) Transact(ctx context.Context, t *Transaction) (held bool, results []Result, err error) {
	if err := errors.Join(t.Then.err, t.Else.err); err != nil {
		return false, nil, err
	}
	request := &pb.TransactionRequest{Freshness: c.added(c.level)}
	request.Then, request.Otherwise = columns(t.Then.commands), columns(t.Else.commands)
	for _, one := range t.If {
		request.CompareKeys = append(request.CompareKeys, []byte(one.key))
		request.CompareOperators = append(request.CompareOperators, one.operator)
		request.CompareValues = append(request.CompareValues, one.value)
	}
	if c.options.Retries > 0 && hasWrites(request) {
		request.RequestId = requestID(16)
	}
	got, err := c.stub().Transaction(ctx, request)
	if err != nil {
		return false, nil, err
	}
	ran := &t.Else
	if got.Held {
		ran = &t.Then
	}
	reply := &pb.ExecuteReply{Statuses: got.Statuses, Keys: got.Keys, Values: got.Values, Counts: got.Counts}
	for _, one := range ran.commands {
		results = append(results, next(one.kind, reply))
	}
	return got.Held, results, nil
}

func hasWrites(request *pb.TransactionRequest) bool {
	return slices.ContainsFunc(slices.Concat(request.Then.GetKinds(), request.Otherwise.GetKinds()), isWrite)
}
