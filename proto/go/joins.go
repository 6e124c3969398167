package pequod

import (
	"context"

	pb "pequod/v1"
)

// AddJoin installs the joins of a text, all or none.
func (c *Client) AddJoin(ctx context.Context, text string) ([]*pb.Join, error) {
	got, err := call(ctx, c, anywhere, harmless, pb.PequodClient.AddJoin, &pb.AddJoinRequest{Text: text})
	return got.GetJoins(), err
}

// DropJoin drops a join and exactly its outputs.
func (c *Client) DropJoin(ctx context.Context, name string) error {
	_, err := call(ctx, c, anywhere, once, pb.PequodClient.DropJoin, &pb.DropJoinRequest{Name: name})
	return err
}

// Joins returns the installed joins, the earliest first.
func (c *Client) Joins(ctx context.Context) ([]*pb.Join, error) {
	got, err := call(ctx, c, anywhere, harmless, pb.PequodClient.ListJoins, &pb.ListJoinsRequest{})
	return got.GetJoins(), err
}

// ExplainJoin tells how a join is evaluated and kept.
func (c *Client) ExplainJoin(ctx context.Context, name string) (*pb.JoinExplanation, error) {
	got, err := call(ctx, c, anywhere, harmless, pb.PequodClient.Explain,
		&pb.ExplainRequest{Subject: &pb.ExplainRequest_Join{Join: name}})
	return got.GetJoin(), err
}

// ExplainRange tells what a read of a range would find.
func (c *Client) ExplainRange(ctx context.Context, over Range) (*pb.RangeExplanation, error) {
	first, last := over.bounds()
	got, err := call(ctx, c, reads(string(first)), harmless, pb.PequodClient.Explain,
		&pb.ExplainRequest{Subject: &pb.ExplainRequest_Range{Range: &pb.Range{First: first, Last: last}}})
	return got.GetRange(), err
}

// InvalidateJoin has the rows of a join computed again by the reads to come, and returns how many parts were dropped.
func (c *Client) InvalidateJoin(ctx context.Context, name string) (uint64, error) {
	return c.invalidate(ctx, &pb.InvalidateRequest{Subject: &pb.InvalidateRequest_Join{Join: name}})
}

// InvalidateRange does the same with the computed rows of a range.
func (c *Client) InvalidateRange(ctx context.Context, over Range) (uint64, error) {
	first, last := over.bounds()
	return c.invalidate(ctx, &pb.InvalidateRequest{Subject: &pb.InvalidateRequest_Range{Range: &pb.Range{First: first, Last: last}}})
}

func (c *Client) invalidate(ctx context.Context, request *pb.InvalidateRequest) (contexts uint64, err error) {
	known, failed := c.known(ctx)
	if failed != nil {
		return 0, failed
	}
	for _, n := range known.nodesOf(known.computes) {
		here := func(*routes) []*node { return []*node{n} }
		got, err := call(ctx, c, here, harmless, pb.PequodClient.Invalidate, request)
		if err != nil {
			return contexts, err
		}
		contexts += got.Contexts
	}
	return contexts, nil
}

// Statistics returns what a server holds and has done.
func (c *Client) Statistics(ctx context.Context) (*pb.StatsReply, error) {
	return call(ctx, c, anywhere, harmless, pb.PequodClient.Stats, &pb.StatsRequest{})
}

// Stub returns the generated stub of the server for reads of a key, for the calls that Client does not have.
func (c *Client) Stub(ctx context.Context, key string) (pb.PequodClient, error) {
	nodes, failed := c.candidates(ctx, reads(key))
	if failed != nil {
		return nil, failed
	}
	if len(nodes) == 0 {
		return nil, gone(c.target + ": no server of it answers reads")
	}
	return nodes[0].stub, nil
}
