package pequod

import (
	"context"
	"errors"

	pb "pequod/v1"
)

// Compare is what the value of a base key has to be in a transaction.
type Compare struct {
	key      string
	operator byte
	value    []byte
}

// Absent holds if the key is not there.
func Absent(key string) Compare { return Compare{key, 1, nil} }

// Present holds if the key is there.
func Present(key string) Compare { return Compare{key, 2, nil} }

// Equal holds if the key has the value.
func Equal(key string, value []byte) Compare { return Compare{key, 3, value} }

// NotEqual holds if the key has another value, or is not there.
func NotEqual(key string, value []byte) Compare { return Compare{key, 4, value} }

// Less holds if the value of the key is a number below this one.
func Less(key, number string) Compare { return Compare{key, 5, []byte(number)} }

// Greater holds if the value of the key is a number above this one.
func Greater(key, number string) Compare { return Compare{key, 6, []byte(number)} }

// Transaction runs Then if all of If hold, and otherwise Else, at one revision, all or none.
type Transaction struct {
	If         []Compare
	Then, Else Batch
}

// Transact runs a transaction; it returns whether all compares held, and the results of the commands that ran.
func (c *Client) Transact(ctx context.Context, t *Transaction) (held bool, results []Result, err error) {
	request, first, isWrite := &pb.TransactionRequest{Freshness: c.added(c.level)}, "", false
	for _, one := range t.If {
		request.CompareKeys = append(request.CompareKeys, []byte(one.key))
		request.CompareOperators = append(request.CompareOperators, one.operator)
		request.CompareValues = append(request.CompareValues, one.value)
		first = one.key
	}
	columns := func(b *Batch) *pb.CommandColumns {
		found := &pb.CommandColumns{}
		for _, one := range b.commands {
			found.Kinds = append(found.Kinds, one.kind)
			found.Arguments, found.Numbers = append(found.Arguments, one.arguments...), append(found.Numbers, one.numbers...)
			if isWrite = isWrite || one.isWrite(); first == "" || one.isWrite() {
				first = string(one.arguments[0])
			}
		}
		return found
	}
	request.Then, request.Otherwise = columns(&t.Then), columns(&t.Else)
	if err := errors.Join(t.Then.err, t.Else.err); err != nil {
		return false, nil, err
	}
	care := harmless
	if isWrite && c.options.Retries > 0 {
		request.RequestId = requestID(16)
	} else if isWrite {
		care = once
	}
	// A home does not know which keys are computed.
	got, err := call(ctx, c, reads(first), care, pb.PequodClient.Transaction, request)
	if err != nil {
		return false, nil, err
	}
	ran := &t.Else
	if got.Held {
		ran = &t.Then
	}
	d := &decoder{statuses: got.Statuses, keys: got.Keys, values: got.Values, counts: got.Counts}
	for _, one := range ran.commands {
		results = append(results, d.next(one.kind))
	}
	return got.Held, results, nil
}
