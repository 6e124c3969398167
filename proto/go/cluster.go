package pequod

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"

	pb "pequod/v1"
)

// cluster is the servers of a client, one or several.
type cluster struct {
	options      Options
	target, zone string
	isCluster    bool
	life         context.Context
	end          context.CancelFunc
	// seeds are whom to ask for the map where no server of the map answers.
	seeds []*node
	mutex sync.Mutex
	nodes map[string]*node
	ranks *ranking
	// routes are nil until the map is known, and failed says why it is not; changed is closed when there is news.
	routes  *routes
	failed  *Error
	changed chan struct{}
	// leave ends the stream that tells the map.
	leave context.CancelFunc
}

func (c *cluster) close() {
	c.end()
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for _, n := range slices.AppendSeq(c.seeds, maps.Values(c.nodes)) {
		_ = n.connection.Close()
	}
}

// tell notes what is known of the map, and wakes those who wait for it.
//
// REQUIRES: the mutex.
func (c *cluster) tell(routes *routes, failed *Error) {
	c.routes, c.failed = routes, failed
	close(c.changed)
	c.changed = make(chan struct{})
}

// known returns the routes, and waits for the map if need be.
func (c *cluster) known(ctx context.Context) (*routes, *Error) {
	for {
		c.mutex.Lock()
		routes, failed, changed := c.routes, c.failed, c.changed
		c.mutex.Unlock()
		switch {
		case c.life.Err() != nil:
			return nil, refusal(codes.Canceled, ReasonClosed, "the client is closed")
		case routes != nil:
			return routes, nil
		case failed != nil:
			return nil, failed
		}
		select {
		case <-changed:
		case <-c.life.Done():
		case <-ctx.Done():
			return nil, errorOf(ctx, ctx.Err())
		}
	}
}

// candidates returns the servers for a call, those that are away last.
func (c *cluster) candidates(ctx context.Context, to route) ([]*node, *Error) {
	routes, failed := c.known(ctx)
	if failed != nil {
		return nil, failed
	}
	return sorted(to(routes), (*node).isAway), nil
}

// learn leaves the server that tells the map if a refusal names a newer one.
func (c *cluster) learn(refused *Error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.leave != nil && refused.number("map_version") > c.routes.state.Map.Version {
		c.leave()
	}
}

// follow follows the map, at any server that answers; one that was left is the last to be asked again.
func (c *cluster) follow() {
	var left string
	for tries := 1; wait(c.life, pause(tries)/10); tries++ {
		c.mutex.Lock()
		servers := slices.Clone(c.seeds)
		if c.routes != nil {
			servers = append(anywhere(c.routes), servers...)
		}
		c.mutex.Unlock()
		var failed *Error
		for _, n := range sorted(servers, func(n *node) bool { return n.address == left || n.isAway() }) {
			var told bool
			if told, failed = c.followOne(n); told {
				left, tries = n.address, 0
				break
			}
		}
		c.mutex.Lock()
		if c.routes == nil {
			c.tell(nil, failed)
		}
		c.mutex.Unlock()
	}
}

// followOne follows one server to the end of its stream, and returns whether it has told a state.
func (c *cluster) followOne(n *node) (told bool, failed *Error) {
	ctx, cancel := context.WithCancel(c.life)
	defer cancel()
	c.mutex.Lock()
	c.leave = cancel
	c.mutex.Unlock()
	failed = n.try(ctx, quiet, func(ctx context.Context, n *node) error {
		stream, err := n.stub.FollowCluster(ctx, &pb.FollowClusterRequest{Differences: true})
		var known *pb.FollowClusterReply
		for err == nil {
			var state *pb.FollowClusterReply
			if state, err = stream.Recv(); err == nil {
				told = true
				known = after(known, state)
				c.take(known)
			}
		}
		return err
	})
	return told, failed
}

// after returns the state that a reply leads to: the whole one, or a difference from the one before.
func after(before, reply *pb.FollowClusterReply) *pb.FollowClusterReply {
	if before == nil || !reply.IsDifference {
		return reply
	}
	changed := map[string]*pb.ClusterServer{}
	for _, one := range reply.Servers {
		changed[one.Id] = one
	}
	for _, id := range reply.Gone {
		changed[id] = nil
	}
	state := &pb.FollowClusterReply{Header: reply.Header, Map: reply.Map, Servers: slices.Clone(reply.Servers)}
	if state.Map == nil {
		state.Map = before.Map
	}
	for _, one := range before.Servers {
		if _, is := changed[one.Id]; !is {
			state.Servers = append(state.Servers, one)
		}
	}
	slices.SortFunc(state.Servers, func(one, other *pb.ClusterServer) int { return strings.Compare(one.Id, other.Id) })
	return state
}

// take goes by a state, unless a newer one is known.
func (c *cluster) take(state *pb.FollowClusterReply) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.life.Err() != nil || c.routes != nil && state.Map.Version < c.routes.state.Map.Version {
		return
	}
	nodes := map[string]*node{}
	for _, one := range state.Servers {
		n, err := c.nodes[one.Id], error(nil)
		if n == nil || n.address != one.Address {
			n, err = c.dial(one.Address)
		}
		if err == nil {
			nodes[one.Id] = n
		}
	}
	for id, n := range c.nodes {
		if nodes[id] != n {
			_ = n.connection.Close()
		}
	}
	c.nodes = nodes
	c.tell(newRoutes(state, nodes, c.zone, c.ranks), nil)
}

// sorted returns servers with those last of which something holds.
func sorted(servers []*node, isLast func(*node) bool) []*node {
	var last []*node
	found := make([]*node, 0, len(servers))
	for _, n := range servers {
		if isLast(n) {
			last = append(last, n)
		} else {
			found = append(found, n)
		}
	}
	return append(found, last...)
}
