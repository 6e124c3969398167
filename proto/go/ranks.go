package pequod

import (
	"cmp"
	"encoding/binary"
	"hash"
	"math"
	"slices"
	"sync"

	"golang.org/x/crypto/blake2b"

	pb "pequod/v1"
)

const (
	// ranksKept are the servers that are kept for a group; with no more left than sparesMin, all are ranked anew.
	ranksKept = 8
	// sparesMin are the spares that a read has at least, if there are servers for them.
	sparesMin = 3
	// groupsMax are the groups whose servers are kept.
	groupsMax = 65536
	// changesMax are the changes that are known; for a group that was not asked for since, all servers are ranked anew.
	changesMax = 256
)

// scored is a server with its score for a group; far is 1 outside of the zone that is read first.
type scored struct {
	id    string
	far   int
	score float64
}

// byScore sorts servers of the zone first, then the greatest score; of servers with one score, the greatest id.
func byScore(one, other scored) int {
	return cmp.Or(cmp.Compare(one.far, other.far), cmp.Compare(other.score, one.score), cmp.Compare(other.id, one.id))
}

// hasher hashes groups for one server.
type hasher struct {
	far    int
	weight float64
	keyed  hash.Hash
}

// score returns the server's score for a group: the greatest one owns it (Wang and Ravishankar, 1998).
func (h *hasher) score(group []byte) float64 {
	var sum [8]byte
	h.keyed.Reset()
	h.keyed.Write(group)
	even := (float64(binary.BigEndian.Uint64(h.keyed.Sum(sum[:0]))>>12) + 0.5) / (1 << 52)
	return -h.weight / math.Log(even)
}

// ranked is what is kept for a group: its first servers, as of a number of changes.
type ranked struct {
	changes int
	first   []scored
}

// ranking ranks servers for groups. A server that comes or goes costs a group that is kept some hashes, not all.
type ranking struct {
	mutex   sync.Mutex
	servers map[string]*hasher
	// changed are the latest servers that have come, gone, or changed; changes counts them all.
	changed []string
	changes int
	groups  map[string]ranked
}

func newRanking() *ranking {
	return &ranking{servers: map[string]*hasher{}, groups: map[string]ranked{}}
}

// update has these servers ranked from now on, those of a zone before the others; an empty zone has them all.
func (k *ranking) update(servers []*pb.ClusterServer, zone string) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	present, before := map[string]*hasher{}, len(k.changed)
	for _, one := range servers {
		known, far, weight := k.servers[one.Id], 0, 1.0
		if zone != "" && one.Zone != zone {
			far = 1
		}
		if one.Weight != nil {
			weight = *one.Weight
		}
		if known == nil || known.far != far || known.weight != weight {
			// An id has 63 bytes at most, and a key of the hash may have 64.
			keyed, err := blake2b.New(8, []byte(one.Id))
			if err != nil {
				continue
			}
			known = &hasher{far, weight, keyed}
			k.changed = append(k.changed, one.Id)
		}
		present[one.Id] = known
	}
	for id := range k.servers {
		if present[id] == nil {
			k.changed = append(k.changed, id)
		}
	}
	k.servers = present
	k.changes += len(k.changed) - before
	k.changed = slices.Clone(k.changed[max(0, len(k.changed)-changesMax):])
}

// first returns the first servers for a group, or all: the owner, then its spares.
func (k *ranking) first(group string) []scored {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	kept, isKept := k.groups[group]
	if isKept && kept.changes == k.changes {
		return kept.first
	}
	if kept.first = k.carriedOn(group, kept); len(kept.first) <= sparesMin {
		kept.first = k.best(group, ranksKept)
	}
	if len(k.groups) >= groupsMax {
		clear(k.groups)
	}
	k.groups[group] = ranked{k.changes, kept.first}
	return kept.first
}

// carriedOn returns the first servers for a group by those that were the first before some changes; none if too few are left.
func (k *ranking) carriedOn(group string, kept ranked) []scored {
	missed := k.changes - kept.changes
	if missed > min(len(k.changed), len(k.servers)/2) {
		return nil
	}
	changed := k.changed[len(k.changed)-missed:]
	found := slices.DeleteFunc(slices.Clone(kept.first), func(one scored) bool { return slices.Contains(changed, one.id) })
	if len(found) <= sparesMin {
		return nil
	}
	last := found[len(found)-1]
	for at, id := range changed {
		if server := k.servers[id]; server != nil && !slices.Contains(changed[:at], id) {
			found = append(found, scored{id, server.far, server.score([]byte(group))})
		}
	}
	slices.SortFunc(found, byScore)
	// Those behind the last one that is left may come after others, which are not kept.
	return found[:min(ranksKept, slices.Index(found, last)+1)]
}

// best returns the first servers for a group, as many as are wanted and there.
//
// REQUIRES: the mutex.
func (k *ranking) best(group string, wanted int) []scored {
	found, text := make([]scored, 0, min(wanted, len(k.servers))+1), []byte(group)
	for id, server := range k.servers {
		one := scored{id, server.far, server.score(text)}
		if len(found) == wanted && byScore(one, found[wanted-1]) > 0 {
			continue
		}
		at, _ := slices.BinarySearchFunc(found, one, byScore)
		found = slices.Insert(found, at, one)
		found = found[:min(wanted, len(found))]
	}
	return found
}
