package pequod

import (
	"context"
	"errors"
	"slices"

	pb "pequod/v1"
)

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
	request := &pb.TransactionRequest{Freshness: c.added(c.level), Then: t.Then.columns(), Otherwise: t.Else.columns()}
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

// columns returns the commands as columns, for a transaction.
func (b *Batch) columns() *pb.CommandColumns {
	found := &pb.CommandColumns{}
	for _, one := range b.commands {
		found.Kinds = append(found.Kinds, one.kind)
		found.Arguments, found.Numbers = append(found.Arguments, one.arguments...), append(found.Numbers, one.numbers...)
	}
	return found
}

func hasWrites(request *pb.TransactionRequest) bool {
	return slices.ContainsFunc(slices.Concat(request.Then.GetKinds(), request.Otherwise.GetKinds()), isWrite)
}
