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
	// cameMax are the servers that may have come, beside two for each that is there, until all groups are ranked anew.
	cameMax = 256
)

// hasher hashes groups for one server; far is 1 outside of the zone that is read first.
type hasher struct {
	id     string
	far    int
	weight float64
	keyed  hash.Hash
}

// of returns the server with its score for a group: the greatest one owns it (Wang and Ravishankar, 1998).
func (h *hasher) of(group []byte) scored {
	var sum [8]byte
	h.keyed.Reset()
	h.keyed.Write(group)
	even := (float64(binary.BigEndian.Uint64(h.keyed.Sum(sum[:0]))>>12) + 0.5) / (1 << 52)
	return scored{h, -h.weight / math.Log(even)}
}

// scored is a server with its score for a group.
type scored struct {
	*hasher
	score float64
}

// byScore sorts servers of the zone first, then the greatest score; of servers with one score, the greatest id.
func byScore(one, other scored) int {
	return cmp.Or(cmp.Compare(one.far, other.far), cmp.Compare(other.score, one.score), cmp.Compare(other.id, one.id))
}

// ranked is what is kept for a group: its first servers, as of a number of servers that had come.
type ranked struct {
	came  int
	first []scored
}

// ranking ranks servers for groups. A server that comes or goes costs a group that is kept some hashes, not all.
type ranking struct {
	mutex   sync.Mutex
	servers map[string]*hasher
	// came are the servers in the order in which they came; one that changes comes anew.
	came   []*hasher
	groups map[string]ranked
}

func newRanking() *ranking {
	return &ranking{servers: map[string]*hasher{}, groups: map[string]ranked{}}
}

// update has these servers ranked from now on, those of a zone before the others; an empty zone has them all.
func (k *ranking) update(servers []*pb.ClusterServer, zone string) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	present := map[string]*hasher{}
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
			known = &hasher{one.Id, far, weight, keyed}
			k.came = append(k.came, known)
		}
		present[one.Id] = known
	}
	k.servers = present
	if len(k.came) > 2*len(present)+cameMax {
		k.came = nil
		clear(k.groups)
	}
}

// first returns the first servers for a group, or all: the owner, then its spares.
func (k *ranking) first(group string) []scored {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	kept, isKept := k.groups[group]
	found := k.carriedOn(group, kept)
	if len(found) <= sparesMin {
		found = k.best(group, ranksKept)
	}
	if !isKept && len(k.groups) >= groupsMax {
		clear(k.groups)
	}
	k.groups[group] = ranked{len(k.came), found}
	return found
}

// carriedOn returns the first servers for a group by those that were the first before; none if too few are left.
func (k *ranking) carriedOn(group string, kept ranked) []scored {
	came := k.came[kept.came:]
	found := slices.DeleteFunc(slices.Clone(kept.first), func(one scored) bool { return k.servers[one.id] != one.hasher })
	if len(found) <= sparesMin || len(came) > len(k.servers)/2 {
		return nil
	}
	last := found[len(found)-1]
	for _, server := range came {
		if k.servers[server.id] == server {
			found = append(found, server.of([]byte(group)))
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
	for _, server := range k.servers {
		one := server.of(text)
		if len(found) == wanted && byScore(one, found[wanted-1]) > 0 {
			continue
		}
		at, _ := slices.BinarySearchFunc(found, one, byScore)
		found = slices.Insert(found, at, one)
		found = found[:min(wanted, len(found))]
	}
	return found
}
