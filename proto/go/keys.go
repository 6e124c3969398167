package pequod

import (
	"context"
	"math"
	"time"

	"google.golang.org/grpc/codes"

	pb "pequod/v1"
)

// Row is a key and its value.
type Row struct {
	Key   string
	Value []byte
}

// PutOptions say how long a key lives; nil is for ever.
type PutOptions struct {
	// TTL is the time after which the key expires; 0: never.
	TTL time.Duration
	// KeepTTL leaves the deadline that the key has.
	KeepTTL bool
}

// keep is what commands have in place of a time to live that stays.
const keep = math.MaxUint64

// Forever is how long keys live that have no deadline.
const Forever = time.Duration(math.MaxInt64)

// milliseconds returns a time to live as servers take it; what is shorter than one is one.
func milliseconds(ttl time.Duration) (uint64, error) {
	if ttl > 0 {
		return uint64(max(ttl.Milliseconds(), 1)), nil
	}
	return 0, refusedTTL(ttl, "it is above 0, and at most a hundred years")
}

func refusedTTL(ttl time.Duration, rule string) *Error {
	failed := refusal(codes.InvalidArgument, ReasonInvalidTtl, "no key lives for "+ttl.String()+": "+rule)
	failed.Facts = map[string]string{"ttl": ttl.String(), "rule": rule}
	return failed
}

// number returns the time to live as commands have it, 0 for ever.
func (o *PutOptions) number() (uint64, error) {
	switch {
	case o == nil || *o == PutOptions{}:
		return 0, nil
	case o.KeepTTL && o.TTL != 0:
		return 0, refusedTTL(o.TTL, "a write sets a deadline or keeps the one that is there, not both")
	case o.KeepTTL:
		return keep, nil
	}
	return milliseconds(o.TTL)
}

func lives(milliseconds uint64) time.Duration {
	if milliseconds == keep {
		return Forever
	}
	return time.Duration(milliseconds) * time.Millisecond
}

// Condition is what the present value of a key has to be for a write to be done.
type Condition struct {
	number   uint64
	expected []byte
}

var (
	IfAbsent  = Condition{number: 1}
	IfPresent = Condition{number: 2}
)

// IfValue holds if the value is this one.
func IfValue(value []byte) Condition { return Condition{3, value} }

// Outcome is that of a write under a condition: if it was not met, nothing was done.
type Outcome struct {
	Met bool
	// Present is the value then, nil if there is none.
	Present []byte
}

// there returns bytes that are not nil.
func there(value []byte) []byte {
	if value == nil {
		return []byte{}
	}
	return value
}

// MultiGet returns the values of keys in their order, nil for each that is absent. Those of one server are of one moment.
func (c *Client) MultiGet(ctx context.Context, keys ...string) ([][]byte, error) {
	routes, failed := c.known(ctx)
	if failed != nil {
		return nil, failed
	}
	found := make(map[string][]byte, len(keys))
	for _, part := range divided(routes, keys, reads) {
		for len(part) > 0 {
			request := &pb.MultiGetRequest{Freshness: c.added(c.level)}
			for _, key := range part {
				request.Keys = append(request.Keys, []byte(key))
			}
			got, err := c.stub().MultiGet(ctx, request)
			if err != nil {
				return nil, err
			}
			for at, value := range got.Values {
				if got.Present[at] {
					found[part[at]] = there(value)
				}
			}
			part = part[len(got.Values):]
		}
	}
	values := make([][]byte, len(keys))
	for at, key := range keys {
		values[at] = found[key]
	}
	return values, nil
}

// MultiPut writes base keys of one home group, all or none.
func (c *Client) MultiPut(ctx context.Context, rows []Row, options *PutOptions) error {
	ttl, err := options.number()
	if err != nil || len(rows) == 0 {
		return err
	}
	request := &pb.MultiPutRequest{TtlMs: ttl}
	if ttl == keep {
		request.TtlMs, request.KeepTtl = 0, true
	}
	for _, row := range rows {
		request.Keys, request.Values = append(request.Keys, []byte(row.Key)), append(request.Values, row.Value)
	}
	_, err = c.stub().MultiPut(ctx, request)
	return err
}
