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
func anywhere(r *routes) (found []*node) {
	others := those(r.state.Servers, func(one *pb.ClusterServer) bool { return r.byID[one.Id] == nil })
	for _, one := range slices.Concat(r.computes, others) {
		if n := r.nodes[one.Id]; n != nil {
			found = append(found, n)
		}
	}
	return found
}

// routes finds the servers of keys in one state of a cluster, as all clients do.
type routes struct {
	state *pb.FollowClusterReply
	nodes map[string]*node
	zone  string
	ranks *ranking
	// computes are those that reads go to, also by id.
	computes []*pb.ClusterServer
	byID     map[string]*pb.ClusterServer
	mutex    sync.Mutex
	// found are the nodes of groups, by what they are asked for.
	found map[asked][]*node
}

// asked is a group that is read (home is empty), or written at a home group, or at any.
type asked struct {
	group, home string
	isWritten   bool
}

// newRoutes returns the routes in a state; the ranking is that of the states before.
func newRoutes(state *pb.FollowClusterReply, nodes map[string]*node, zone string, ranks *ranking) *routes {
	r := &routes{state: state, nodes: nodes, zone: zone, ranks: ranks, byID: map[string]*pb.ClusterServer{}, found: map[asked][]*node{}}
	all := r.with("compute", "")
	// Also those are ranked that no reads go to: they may be back in the next state.
	ranks.update(all, zone)
	r.computes = present(all, state.Map.Version)
	for _, one := range r.computes {
		r.byID[one.Id] = one
	}
	return r
}

// with returns the servers of a role, in a home group or in any, that can be reached.
func (r *routes) with(role, group string) []*pb.ClusterServer {
	return those(r.state.Servers, func(one *pb.ClusterServer) bool {
		return r.nodes[one.Id] != nil && slices.Contains(one.Roles, role) && (group == "" || one.Group == group)
	})
}

// present returns the servers in the best state that there is; if some of them have a version of the map, those.
func present(servers []*pb.ClusterServer, version uint64) []*pb.ClusterServer {
	for _, state := range []string{"ready", "draining", "joining"} {
		found := those(servers, func(one *pb.ClusterServer) bool { return one.State == state })
		current := those(found, func(one *pb.ClusterServer) bool { return one.MapVersion == 0 || one.MapVersion >= version })
		if len(current) > 0 {
			return current
		} else if len(found) > 0 {
			return found
		}
	}
	return nil
}

// those returns the servers of which something holds.
func those(servers []*pb.ClusterServer, holds func(*pb.ClusterServer) bool) []*pb.ClusterServer {
	return slices.DeleteFunc(slices.Clone(servers), func(one *pb.ClusterServer) bool { return !holds(one) })
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
	return key[:max(end, len(placement.Prefix))], placement
}

// ranked returns servers as a group has them: its owner, then its spares, those of a zone before the others.
func (r *routes) ranked(group string, servers []*pb.ClusterServer, zone string) (found []*node) {
	these := newRanking()
	these.update(servers, zone)
	for _, one := range these.best(group, len(servers)) {
		found = append(found, r.nodes[one.id])
	}
	return found
}

// readers returns servers for a read that begins at a key: the first ones of its group, or all if none of them is there.
func (r *routes) readers(key string) []*node {
	group, placement := r.group(key)
	found := r.firstReaders(group, placement)
	if len(found) < len(r.computes) && !slices.ContainsFunc(found, func(n *node) bool { return !n.isAway() }) {
		found = r.ranked(group, r.computes, r.zone)
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
	return r.kept(asked{group: group}, func() (found []*node) {
		if placement.ReadSpread <= sparesMin && len(r.computes) > ranksKept {
			for _, one := range r.ranks.first(group) {
				if r.byID[one.id] != nil {
					found = append(found, r.nodes[one.id])
				}
			}
		}
		if len(found) <= sparesMin {
			return r.ranked(group, r.computes, r.zone)
		}
		return found
	})
}

// writers returns the servers for a write: the homes of the key, then computes, which hand it on.
func (r *routes) writers(key string) []*node {
	home, isOwned := r.homeGroup(key)
	if !isOwned {
		return r.readers(key)
	}
	group, _ := r.group(key)
	found := slices.Clone(r.kept(asked{group, home, true}, func() []*node {
		return r.ranked(group, present(r.with("home", home), 0), "")
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
