package pequod

import (
	"context"
	"errors"
	"io"
	"iter"

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

// Scan yields the rows of a range. They come in pieces, each exact at its own moment.
func (c *Client) Scan(ctx context.Context, over Range, options *ScanOptions) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		for page, err := range c.pages(ctx, over, options) {
			if err != nil {
				yield(Row{}, err)
				return
			}
			for _, row := range page.Rows {
				if !yield(row, nil) {
					return
				}
			}
		}
	}
}

// Rows returns the rows of a range together.
func (c *Client) Rows(ctx context.Context, over Range, options *ScanOptions) (rows []Row, err error) {
	for page, err := range c.pages(ctx, over, options) {
		if err != nil {
			return rows, err
		}
		rows = append(rows, page.Rows...)
	}
	return rows, nil
}

// Page returns the first rows of a range, as many as one message has.
func (c *Client) Page(ctx context.Context, over Range, options *ScanOptions) (page Page, err error) {
	for page, err := range c.pages(ctx, over, options) {
		return page, err
	}
	return page, err
}

// pages yields the parts of a scan, one call for each. Each is of a state that has at least what was shown before.
func (c *Client) pages(ctx context.Context, over Range, options *ScanOptions) iter.Seq2[Page, error] {
	request := &pb.ScanRequest{Freshness: c.added(c.level), OneChunk: true}
	request.First, request.Last = over.bounds()
	if options != nil {
		request.Reverse, request.KeysOnly = options.Reverse, options.KeysOnly
		if limit := uint64(max(options.Limit, 0)); options.Limit != 0 {
			request.Limit = &limit
		}
	}
	return func(yield func(Page, error) bool) {
		for isFirst := true; ; isFirst = false {
			chunk, failed := c.chunk(ctx, request)
			if failed != nil && !isFirst && failed.Reason == ReasonTokenLost {
				failed = refusal(codes.Unavailable, ReasonUnavailable, "the server went away in a scan, and no other has its state; scan again")
			}
			if failed != nil {
				yield(Page{}, failed)
				return
			}
			page := Page{rowsOf(chunk.Keys, chunk.Values), advance(request, chunk)}
			if !yield(page, nil) || page.Next == nil || request.Limit != nil && *request.Limit == 0 {
				return
			}
			request.Freshness = After(Token{string(chunk.Header.GetToken())}).level
		}
	}
}

func (c *Client) chunk(ctx context.Context, request *pb.ScanRequest) (chunk *pb.ScanReply, failed *Error) {
	ctx, cancel := c.limited(ctx)
	defer cancel()
	failed = c.run(ctx, reads(string(request.First)), careOfReads(request.Freshness), func(ctx context.Context, n *node) error {
		stream, err := n.stub.Scan(ctx, request)
		if err == nil {
			chunk, err = stream.Recv()
		}
		if errors.Is(err, io.EOF) {
			chunk, err = &pb.ScanReply{}, nil // A scan of no rows has no parts.
		}
		return err
	})
	c.seen.note(chunk.GetHeader().GetToken())
	return chunk, failed
}

// advance has a request ask for the rows after a part, and returns the range of these; nil if there are none.
func advance(request *pb.ScanRequest, chunk *pb.ScanReply) *Range {
	if chunk.ResumeKey == nil {
		return nil
	}
	if request.Reverse {
		request.Last = chunk.ResumeKey
	} else {
		request.First = chunk.ResumeKey
	}
	if request.Limit != nil {
		*request.Limit -= min(*request.Limit, uint64(len(chunk.Keys)))
	}
	return &Range{First: string(request.First), Last: string(request.Last)}
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

// RemoveRange removes the base keys of a range, at one home group after the other, and returns how many there were.
func (c *Client) RemoveRange(ctx context.Context, over Range) (removed uint64, err error) {
	routes, failed := c.known(ctx)
	if failed != nil {
		return 0, failed
	}
	first, last := over.bounds()
	for _, part := range routes.homeParts(first, last) {
		got, err := c.stub().RemoveRange(ctx, &pb.RemoveRangeRequest{First: part.First, Last: part.Last})
		if err != nil {
			return removed, err
		}
		removed += got.Removed
	}
	return removed, nil
}
