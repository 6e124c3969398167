package pequod

import (
	"context"

	"google.golang.org/grpc"

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

// Invoke makes a call of a generated stub: pb.NewPequodClient(client) has the calls that Client itself does not have. They
// go where their keys are read, and are made again only where they certainly were not applied.
func (c *Client) Invoke(ctx context.Context, method string, request, reply any, options ...grpc.CallOption) error {
	ctx, cancel := c.limited(ctx)
	defer cancel()
	to := anywhere
	if one, ok := request.(interface{ GetRange() *pb.Range }); ok && one.GetRange() != nil {
		to = reads(string(one.GetRange().First))
	} else if one, ok := request.(interface{ GetFirst() []byte }); ok {
		to = reads(string(one.GetFirst()))
	}
	failed := c.run(ctx, to, once, func(ctx context.Context, n *node) error {
		return n.connection.Invoke(ctx, method, request, reply, options...)
	})
	if failed != nil {
		return failed
	}
	return nil
}

// NewStream begins a stream of a generated stub, at the first server that is there.
func (c *Client) NewStream(
	ctx context.Context, of *grpc.StreamDesc, method string, options ...grpc.CallOption,
) (grpc.ClientStream, error) {
	nodes, failed := c.candidates(ctx, anywhere)
	if failed != nil {
		return nil, failed
	}
	if len(nodes) == 0 {
		return nil, gone(c.target + ": no server of it is known")
	}
	return nodes[0].connection.NewStream(ctx, of, method, options...)
}
