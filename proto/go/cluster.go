package pequod

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

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
	ranks *ranking
	news  atomic.Pointer[news]
	// mutex is held while servers come and go.
	mutex sync.Mutex
}

// news is what is known of the map: the routes, or why there are none.
type news struct {
	routes *routes
	failed *Error
	// leave ends the stream that has told it; changed is closed when there is more.
	leave   context.CancelFunc
	changed chan struct{}
}

func (c *cluster) tell(routes *routes, failed *Error, leave context.CancelFunc) {
	if before := c.news.Swap(&news{routes, failed, leave, make(chan struct{})}); before != nil {
		close(before.changed)
	}
}

func (c *cluster) close() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.end()
	servers := c.seeds
	if now := c.news.Load(); now.routes != nil {
		servers = slices.AppendSeq(slices.Clone(servers), maps.Values(now.routes.nodes))
	}
	for _, n := range servers {
		_ = n.connection.Close()
	}
}

// known returns the routes, and waits for the map if need be.
func (c *cluster) known(ctx context.Context) (*routes, *Error) {
	for {
		now := c.news.Load()
		switch {
		case c.life.Err() != nil:
			return nil, refusal(codes.Canceled, ReasonClosed, "the client is closed")
		case now.routes != nil || now.failed != nil:
			return now.routes, now.failed
		}
		select {
		case <-now.changed:
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

// sorted returns servers with those last of which something holds.
func sorted(servers []*node, isLast func(*node) bool) []*node {
	var found, last []*node
	for _, n := range servers {
		if isLast(n) {
			last = append(last, n)
		} else {
			found = append(found, n)
		}
	}
	return append(found, last...)
}

// learn leaves the server that tells the map if a refusal names a newer one.
func (c *cluster) learn(refused *Error) {
	if now := c.news.Load(); now.leave != nil && refused.number("map_version") > now.routes.state.Map.Version {
		now.leave()
	}
}

// follow follows the map, at any server that answers; one that was left is the last to be asked again.
func (c *cluster) follow() {
	var left string
	for tries := 1; wait(c.life, pause(tries)/10); tries++ {
		servers := c.seeds
		if now := c.news.Load(); now.routes != nil {
			servers = slices.Concat(anywhere(now.routes), servers)
		}
		var failed *Error
		for _, n := range sorted(servers, func(n *node) bool { return n.address == left || n.isAway() }) {
			var told bool
			if told, failed = c.followOne(n); told {
				left, tries = n.address, 0
				break
			}
		}
		if c.news.Load().routes == nil {
			c.tell(nil, failed, nil)
		}
	}
}

// followOne follows one server to the end of its stream, and returns whether it has told a state.
func (c *cluster) followOne(n *node) (told bool, failed *Error) {
	ctx, leave := context.WithCancel(c.life)
	defer leave()
	failed = n.try(ctx, quiet, func(ctx context.Context, n *node) error {
		stream, err := n.stub.FollowCluster(ctx, &pb.FollowClusterRequest{Differences: true})
		var state, reply *pb.FollowClusterReply
		for err == nil {
			if reply, err = stream.Recv(); err == nil {
				state, told = after(state, reply), true
				c.take(state, leave)
			}
		}
		return err
	})
	return told, failed
}

// after returns the state that a reply leads to: the whole one, or a difference from the one before.
func after(before, reply *pb.FollowClusterReply) *pb.FollowClusterReply {
	if !reply.IsDifference {
		return reply
	}
	state := &pb.FollowClusterReply{Map: cmp.Or(reply.Map, before.Map), Servers: slices.Clone(reply.Servers)}
	changed := slices.Clone(reply.Gone)
	for _, one := range reply.Servers {
		changed = append(changed, one.Id)
	}
	for _, one := range before.Servers {
		if !slices.Contains(changed, one.Id) {
			state.Servers = append(state.Servers, one)
		}
	}
	slices.SortFunc(state.Servers, func(one, other *pb.ClusterServer) int { return strings.Compare(one.Id, other.Id) })
	return state
}

// take goes by a state, unless a newer one is known; leave ends the stream that has told it.
func (c *cluster) take(state *pb.FollowClusterReply, leave context.CancelFunc) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	before, nodes := map[string]*node{}, map[string]*node{}
	now := c.news.Load().routes
	switch {
	case c.life.Err() != nil:
		return
	case now != nil && state.Map.Version < now.state.Map.Version:
		c.tell(now, nil, leave)
		return
	case now != nil:
		before = now.nodes
	}
	for _, one := range state.Servers {
		n := before[one.Id]
		if n == nil || n.address != one.Address {
			n, _ = c.dial(one.Address)
		}
		if n != nil {
			nodes[one.Id] = n
		}
	}
	for id, n := range before {
		if nodes[id] != n {
			_ = n.connection.Close()
		}
	}
	c.tell(newRoutes(state, nodes, c.zone, c.ranks), nil, leave)
}
