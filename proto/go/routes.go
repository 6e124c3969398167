package pequod

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math"
	mathrand "math/rand/v2"
	"slices"
	"strings"

	"golang.org/x/crypto/blake2b"

	pb "pequod/v1"
)

// route returns the servers for a call, the best first.
type route func(*routes) []*node

func reads(key string) route  { return func(r *routes) []*node { return r.readers(key) } }
func writes(key string) route { return func(r *routes) []*node { return r.writers(key) } }

// anywhere returns the computes, and then the others.
func anywhere(r *routes) []*node {
	others := slices.DeleteFunc(slices.Clone(r.state.Servers), func(one *pb.ClusterServer) bool {
		return slices.Contains(r.computes, one)
	})
	return r.nodesOf(slices.Concat(r.computes, others))
}

// routes finds the servers of keys in one state of a cluster, as all clients do.
type routes struct {
	state    *pb.FollowClusterReply
	nodes    map[string]*node
	zone     string
	computes []*pb.ClusterServer
}

func newRoutes(state *pb.FollowClusterReply, nodes map[string]*node, zone string) *routes {
	r := &routes{state: state, nodes: nodes, zone: zone}
	r.computes = r.present("compute", "", state.Map.Version)
	return r
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
	scores := map[*pb.ClusterServer]float64{}
	for _, one := range servers {
		scores[one] = score(one, group)
	}
	return slices.SortedFunc(slices.Values(servers), func(one, other *pb.ClusterServer) int {
		return cmp.Or(cmp.Compare(scores[other], scores[one]), cmp.Compare(other.Id, one.Id))
	})
}

func btoi(is bool) int {
	if is {
		return 1
	}
	return 0
}

// score returns a server's score for a group: the greatest one owns it (Wang and Ravishankar, 1998).
func score(server *pb.ClusterServer, group string) float64 {
	hash, err := blake2b.New(8, []byte(server.Id))
	if err != nil {
		return 0 // An id has 64 bytes at most.
	}
	hash.Write([]byte(group))
	even := (float64(binary.BigEndian.Uint64(hash.Sum(nil))>>12) + 0.5) / (1 << 52)
	if server.Weight != nil {
		return -*server.Weight / math.Log(even)
	}
	return -1 / math.Log(even)
}

// readers returns the servers for a read that begins at a key.
func (r *routes) readers(key string) []*node {
	if len(r.computes) == 1 {
		return r.nodesOf(r.computes)
	}
	group, placement := r.group(key)
	servers := r.ranked(group, r.computes)
	if r.zone != "" {
		slices.SortStableFunc(servers, func(one, other *pb.ClusterServer) int {
			return btoi(one.Zone != r.zone) - btoi(other.Zone != r.zone)
		})
	}
	if spread := min(int(placement.ReadSpread), len(servers)); spread > 1 {
		at := mathrand.IntN(spread)
		servers[0], servers[at] = servers[at], servers[0]
	}
	return r.nodesOf(servers)
}

// writers returns the servers for a write: the homes of the key, then the computes, which hand it on.
func (r *routes) writers(key string) []*node {
	home, ok := r.homeGroup(key)
	if !ok {
		return r.readers(key)
	}
	group, _ := r.group(key)
	found := r.nodesOf(r.ranked(group, r.present("home", home, 0)))
	for _, n := range r.readers(key) {
		if !slices.Contains(found, n) {
			found = append(found, n)
		}
	}
	return found
}

// homeGroup returns the group that owns a key, without a name where the map has no home ranges; false if none owns it.
func (r *routes) homeGroup(key string) (string, bool) {
	for _, one := range r.state.Map.HomeRanges {
		if key >= string(one.First) && (one.Last == nil || key < string(one.Last)) {
			return one.Group, true
		}
	}
	return "", len(r.state.Map.HomeRanges) == 0
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
