package pequod

import (
	"bytes"
	mathrand "math/rand/v2"
	"slices"
	"sort"
	"strings"
	"sync"

	pb "pequod/v1"
)

// route returns the servers for a call, the best first.
type route func(*routes) []*node

func reads(key string) route  { return func(r *routes) []*node { return r.readers(key) } }
func writes(key string) route { return func(r *routes) []*node { return r.writers(key) } }

// anywhere returns the computes, and then the others.
func anywhere(r *routes) []*node {
	others := slices.DeleteFunc(slices.Clone(r.state.Servers), func(one *pb.ClusterServer) bool {
		return r.near[one.Id] != nil || r.far[one.Id] != nil
	})
	return r.nodesOf(slices.Concat(r.computes, others))
}

// routes finds the servers of keys in one state of a cluster, as all clients do.
type routes struct {
	state    *pb.FollowClusterReply
	nodes    map[string]*node
	zone     string
	ranks    *rankings
	computes []*pb.ClusterServer
	// near and far are the computes of the zone and the others, by id.
	near, far map[string]*pb.ClusterServer
	mutex     sync.Mutex
	// found are the nodes of groups, by what they are asked for.
	found map[asked][]*node
}

// asked is a group that is read (home is empty), or written at a home group, or at any.
type asked struct {
	group, home string
	isWritten   bool
}

// newRoutes returns the routes in a state; the rankings are those of the states before.
func newRoutes(state *pb.FollowClusterReply, nodes map[string]*node, zone string, ranks *rankings) *routes {
	r := &routes{state: state, nodes: nodes, zone: zone, ranks: ranks, found: map[asked][]*node{}}
	ranks.update(state.Servers, zone)
	r.computes = r.present("compute", "", state.Map.Version)
	r.near, r.far = map[string]*pb.ClusterServer{}, map[string]*pb.ClusterServer{}
	for _, one := range r.computes {
		if isNear(one, zone) {
			r.near[one.Id] = one
		} else {
			r.far[one.Id] = one
		}
	}
	return r
}

// kept returns the nodes for what is asked, found once.
func (r *routes) kept(one asked, find func() []*node) []*node {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	nodes, isFound := r.found[one]
	if !isFound {
		if len(r.found) >= groupsMax {
			clear(r.found)
		}
		nodes = find()
		r.found[one] = nodes
	}
	return nodes
}

// present returns the servers of a role in the best state that there is; if some of them have a version of the map, those.
func (r *routes) present(role, group string, version uint64) (found []*pb.ClusterServer) {
	for _, state := range []string{"ready", "draining", "joining"} {
		var current []*pb.ClusterServer
		for _, one := range r.state.Servers {
			if one.State == state && slices.Contains(one.Roles, role) && (group == "" || one.Group == group) {
				found = append(found, one)
				if one.MapVersion == 0 || one.MapVersion >= version {
					current = append(current, one)
				}
			}
		}
		if len(current) > 0 {
			return current
		} else if len(found) > 0 {
			break
		}
	}
	return found
}

func (r *routes) nodesOf(servers []*pb.ClusterServer) (found []*node) {
	for _, one := range servers {
		found = append(found, r.nodes[one.Id])
	}
	return found
}

// group returns the prefix that a key shares with the keys that are computed at the same server.
func (r *routes) group(key string) (string, *pb.ClusterPlacement) {
	level, placement := uint32(1), &pb.ClusterPlacement{}
	for _, one := range r.state.Map.Placements {
		if strings.HasPrefix(key, string(one.Prefix)) && len(one.Prefix) >= len(placement.Prefix) {
			placement = one
		}
	}
	if placement.Level != nil {
		level = *placement.Level
	}
	end := 0
	for range level + 1 {
		at := strings.IndexByte(key[end:], '|')
		if at < 0 {
			key = strings.TrimSuffix(key, "|") + "|"
			end = len(key)
			break
		}
		end += at + 1
	}
	if end < len(placement.Prefix) {
		return string(placement.Prefix), placement
	}
	return key[:end], placement
}

// ranked returns the servers of a group: its owner, then its spares.
func (r *routes) ranked(group string, servers []*pb.ClusterServer) []*pb.ClusterServer {
	these, by := newRanking(), map[string]*pb.ClusterServer{}
	these.update(servers)
	for _, one := range servers {
		by[one.Id] = one
	}
	found := make([]*pb.ClusterServer, 0, len(servers))
	for _, one := range these.best(group, len(servers)) {
		found = append(found, by[one.id])
	}
	return found
}

// first returns the first computes of a group; none if too few are kept.
func (r *routes) first(group string) (found []*pb.ClusterServer) {
	for _, side := range []struct {
		ranks   *ranking
		present map[string]*pb.ClusterServer
	}{{r.ranks.near, r.near}, {r.ranks.far, r.far}} {
		count := 0
		for _, one := range side.ranks.first(group) {
			if server := side.present[one.id]; server != nil {
				found = append(found, server)
				count++
			}
		}
		if count < min(sparesMin+1, len(side.present)) {
			return nil
		} else if count < len(side.present) {
			// Others of this side come before those of the other one.
			break
		}
	}
	return found
}

// all returns all computes of a group, those of the zone first.
func (r *routes) all(group string) []*pb.ClusterServer {
	servers := r.ranked(group, r.computes)
	slices.SortStableFunc(servers, func(one, other *pb.ClusterServer) int {
		return btoi(!isNear(one, r.zone)) - btoi(!isNear(other, r.zone))
	})
	return servers
}

func btoi(is bool) int {
	if is {
		return 1
	}
	return 0
}

// readers returns servers for a read that begins at a key: the first ones of its group, or all if none of them is there.
func (r *routes) readers(key string) []*node {
	group, placement := r.group(key)
	found := r.firstReaders(group, placement)
	if len(found) < len(r.computes) && !slices.ContainsFunc(found, func(n *node) bool { return !n.isAway() }) {
		found = r.nodesOf(r.all(group))
	}
	if spread := min(int(placement.ReadSpread), len(found)); spread > 1 {
		found = slices.Clone(found)
		at := mathrand.IntN(spread)
		found[0], found[at] = found[at], found[0]
	}
	return found
}

// firstReaders returns the first computes of a group, some at least: the owner, then its spares.
func (r *routes) firstReaders(group string, placement *pb.ClusterPlacement) []*node {
	return r.kept(asked{group: group}, func() []*node {
		var found []*pb.ClusterServer
		if placement.ReadSpread <= sparesMin && len(r.computes) > ranksKept {
			found = r.first(group)
		}
		if len(found) == 0 {
			found = r.all(group)
		}
		return r.nodesOf(found)
	})
}

// writers returns the servers for a write: the homes of the key, then computes, which hand it on.
func (r *routes) writers(key string) []*node {
	home, ok := r.homeGroup(key)
	if !ok {
		return r.readers(key)
	}
	group, _ := r.group(key)
	found := slices.Clone(r.kept(asked{group, home, true}, func() []*node {
		return r.nodesOf(r.ranked(group, r.present("home", home, 0)))
	}))
	for _, n := range r.readers(key) {
		if !slices.Contains(found, n) {
			found = append(found, n)
		}
	}
	return found
}

// homeGroup returns the group that owns a key, without a name where the map has no home ranges; false if none owns it.
func (r *routes) homeGroup(key string) (string, bool) {
	ranges := r.state.Map.HomeRanges
	// The ranges are disjoint, and in key order.
	at := sort.Search(len(ranges), func(at int) bool { return string(ranges[at].First) > key }) - 1
	if at < 0 || ranges[at].Last != nil && key >= string(ranges[at].Last) {
		return "", len(ranges) == 0
	}
	return ranges[at].Group, true
}

// homeParts cuts a range into those of the home groups.
func (r *routes) homeParts(first, last []byte) (parts []*pb.Range) {
	for _, one := range r.state.Map.HomeRanges {
		start, end := slices.MaxFunc([][]byte{first, one.First}, bytes.Compare), last
		if end == nil || one.Last != nil && bytes.Compare(one.Last, end) < 0 {
			end = one.Last
		}
		if end == nil || bytes.Compare(start, end) < 0 {
			parts = append(parts, &pb.Range{First: start, Last: end})
		}
	}
	if len(r.state.Map.HomeRanges) == 0 {
		return []*pb.Range{{First: first, Last: last}}
	}
	return parts
}
