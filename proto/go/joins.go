package pequod

import (
	"context"

	pb "pequod/v1"
)

// AddJoin installs the joins of a text, all or none.
func (c *Client) AddJoin(ctx context.Context, text string) ([]*pb.Join, error) {
	got, err := c.stub().AddJoin(ctx, &pb.AddJoinRequest{Text: text})
	return got.GetJoins(), err
}

// DropJoin drops a join and exactly its outputs.
func (c *Client) DropJoin(ctx context.Context, name string) error {
	_, err := c.stub().DropJoin(ctx, &pb.DropJoinRequest{Name: name})
	return err
}

// Joins returns the installed joins, the earliest first.
func (c *Client) Joins(ctx context.Context) ([]*pb.Join, error) {
	got, err := c.stub().ListJoins(ctx, &pb.ListJoinsRequest{})
	return got.GetJoins(), err
}
