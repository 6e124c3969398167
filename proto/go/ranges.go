package pequod

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"

	"google.golang.org/grpc/codes"

	pb "pequod/v1"
)

// Range is the keys from First up to Last without it, to the end if it is empty, that start with Prefix.
type Range struct{ First, Last, Prefix string }

// PrefixEnd returns the end of the range of the keys that start with a prefix; empty if that is the end of all keys.
func PrefixEnd(prefix string) string {
	for end := []byte(prefix); len(end) > 0; end = end[:len(end)-1] {
		if last := len(end) - 1; end[last] < 0xff {
			end[last]++
			return string(end)
		}
	}
	return ""
}

// bounds returns the range without its prefix; nil for the end of all keys.
func (r Range) bounds() (first, last []byte) {
	end := PrefixEnd(r.Prefix)
	if end == "" || r.Last != "" && r.Last < end {
		end = r.Last
	}
	if end != "" {
		last = []byte(end)
	}
	return []byte(max(r.First, r.Prefix)), last
}

// ScanOptions say which rows of a range a scan has; nil is all.
type ScanOptions struct {
	// Limit is the greatest number of rows; 0: all, a negative number: none.
	Limit    int
	Reverse  bool
	KeysOnly bool
}

// Page is some rows of a range, and the range of those after them; nil if there are none.
type Page struct {
	Rows []Row
	Next *Range
}

func (c *Client) scanRequest(over Range, options *ScanOptions) *pb.ScanRequest {
	request := &pb.ScanRequest{Freshness: c.added(c.level)}
	request.First, request.Last = over.bounds()
	if options != nil {
		request.Reverse, request.KeysOnly = options.Reverse, options.KeysOnly
		if limit := uint64(max(options.Limit, 0)); options.Limit != 0 {
			request.Limit = &limit
		}
	}
	return request
}

// Scan yields the rows of a range. They come in pieces, each exact at its own moment.
func (c *Client) Scan(ctx context.Context, over Range, options *ScanOptions) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		err := c.chunks(ctx, c.scanRequest(over, options), func(chunk *pb.ScanReply) bool {
			for _, row := range rowsOf(chunk.Keys, chunk.Values) {
				if !yield(row, nil) {
					return false
				}
			}
			return true
		})
		if err != nil {
			yield(Row{}, err)
		}
	}
}

// Rows returns the rows of a range together.
func (c *Client) Rows(ctx context.Context, over Range, options *ScanOptions) (rows []Row, err error) {
	err = c.chunks(ctx, c.scanRequest(over, options), func(chunk *pb.ScanReply) bool {
		rows = append(rows, rowsOf(chunk.Keys, chunk.Values)...)
		return true
	})
	return rows, err
}

// Page returns the first rows of a range, as many as one message has.
func (c *Client) Page(ctx context.Context, over Range, options *ScanOptions) (page Page, err error) {
	request := c.scanRequest(over, options)
	request.OneChunk = true
	err = c.chunks(ctx, request, func(chunk *pb.ScanReply) bool {
		page.Rows = rowsOf(chunk.Keys, chunk.Values)
		if chunk.ResumeKey != nil {
			page.Next = &Range{First: string(request.First), Last: string(request.Last)}
			if request.Reverse {
				page.Next.Last = string(chunk.ResumeKey)
			} else {
				page.Next.First = string(chunk.ResumeKey)
			}
		}
		return false
	})
	return page, err
}

func rowsOf(keys, values [][]byte) []Row {
	rows := make([]Row, len(keys))
	for at, key := range keys {
		rows[at].Key = string(key)
		if len(values) > 0 {
			rows[at].Value = there(values[at])
		}
	}
	return rows
}

// chunks has a function take the parts of a scan, until it returns false. After an interruption it goes on behind the
// last part, at a state that has at least what was shown.
func (c *Client) chunks(ctx context.Context, request *pb.ScanRequest, take func(*pb.ScanReply) bool) error {
	var shown []byte
	first := string(request.First)
	failed := c.run(ctx, reads(first), careOf(request.Freshness), func(ctx context.Context, n *node) error {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		late := time.AfterFunc(c.options.Timeout, func() { cancel(context.DeadlineExceeded) })
		defer late.Stop()
		stream, err := n.stub.Scan(ctx, request)
		for err == nil {
			var chunk *pb.ScanReply
			if chunk, err = stream.Recv(); err == nil {
				late.Stop()
				c.seen.note(chunk.Header.GetToken())
				shown = chunk.Header.GetToken()
				if !take(chunk) || !advance(request, chunk) {
					return nil
				}
				request.Freshness = After(Token{string(shown)}).level
				late.Reset(c.options.Timeout)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if context.Cause(ctx) == context.DeadlineExceeded {
			return context.DeadlineExceeded
		}
		return err
	})
	switch {
	case failed == nil:
		return nil
	case shown != nil && failed.Reason == ReasonTokenLost:
		return refusal(codes.Unavailable, ReasonUnavailable, "the server went away in a scan, and no other has its state; scan again")
	}
	return failed
}

// advance has a request ask for the rows after a part, and returns whether there are any.
func advance(request *pb.ScanRequest, chunk *pb.ScanReply) bool {
	if chunk.ResumeKey == nil {
		return false
	}
	if request.Reverse {
		request.Last = chunk.ResumeKey
	} else {
		request.First = chunk.ResumeKey
	}
	if request.Limit != nil {
		*request.Limit -= uint64(len(chunk.Keys))
		return *request.Limit > 0
	}
	return true
}

// Count returns how many keys a range has.
func (c *Client) Count(ctx context.Context, over Range) (uint64, error) {
	got, err := c.one(ctx, func(b *Batch) { b.Count(over) })
	return got.Count, err
}

// Splits returns up to count-1 keys that cut a range into parts of about equal numbers of rows.
func (c *Client) Splits(ctx context.Context, over Range, count int) (keys []string, err error) {
	first, last := over.bounds()
	got, err := call(ctx, c, reads(string(first)), harmless, pb.PequodClient.Splits,
		&pb.SplitsRequest{First: first, Last: last, Count: uint64(max(count, 0))})
	for _, key := range got.GetKeys() {
		keys = append(keys, string(key))
	}
	return keys, err
}

// RemoveRange removes the base keys of a range, and returns how many there were.
func (c *Client) RemoveRange(ctx context.Context, over Range) (removed uint64, err error) {
	routes, failed := c.known(ctx)
	if failed != nil {
		return 0, failed
	}
	first, last := over.bounds()
	parts := routes.state.Map.HomeRanges
	if len(parts) == 0 {
		parts = []*pb.ClusterHomeRange{{}}
	}
	for _, part := range parts {
		start, end := max(string(first), string(part.First)), last
		if end == nil || part.Last != nil && string(part.Last) < string(end) {
			end = part.Last
		}
		if end != nil && start >= string(end) && len(parts) > 1 {
			continue
		}
		got, err := call(ctx, c, writes(start), once, pb.PequodClient.RemoveRange,
			&pb.RemoveRangeRequest{First: []byte(start), Last: end})
		if err != nil {
			return removed, err
		}
		removed += got.Removed
	}
	return removed, nil
}
