package pequod

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	pb "pequod/v1"
)

// TestKeysGoWhereOtherClientsSendThem compares routes with those that another client has written to PEQUOD_ROUTES.
func TestKeysGoWhereOtherClientsSendThem(t *testing.T) {
	file := os.Getenv("PEQUOD_ROUTES")
	if file == "" {
		t.Skip("PEQUOD_ROUTES names no file")
	}
	text, err := os.ReadFile(file)
	var given []struct {
		State json.RawMessage
		Zone  string
		Keys  []struct {
			Key              []byte
			Readers, Writers []string
		}
	}
	if err != nil || json.Unmarshal(text, &given) != nil || len(given) == 0 {
		t.Fatal("these are no routes:", err)
	}
	for number, one := range given {
		state := &pb.FollowClusterReply{}
		if err := protojson.Unmarshal(one.State, state); err != nil {
			t.Fatal(err)
		}
		nodes, ids := map[string]*node{}, map[*node]string{}
		for _, server := range state.Servers {
			nodes[server.Id] = &node{}
			ids[nodes[server.Id]] = server.Id
		}
		r := newRoutes(state, nodes, one.Zone, newRanking())
		names := func(nodes []*node) (found []string) {
			for _, n := range nodes {
				found = append(found, ids[n])
			}
			return found
		}
		for _, key := range one.Keys {
			group, placement := r.group(string(key.Key))
			if found := names(r.firstReaders(group, placement)); !slices.Equal(found, key.Readers) {
				t.Errorf("state %d: %q is read at %v, not %v", number, key.Key, found, key.Readers)
			}
			// The computes that follow are for homes that are away.
			if len(state.Servers) > ranksKept {
				continue // Without connections it cannot be told which servers are away.
			}
			if found := names(r.writers(string(key.Key))); !slices.Equal(found[:len(key.Writers)], key.Writers) {
				t.Errorf("state %d: %q is written at %v, not %v", number, key.Key, found, key.Writers)
			}
		}
	}
}

// someState returns a state of computes of two zones; those with a number below drained drain.
func someState(count, drained int, left map[int]bool) (*pb.FollowClusterReply, map[string]*node) {
	state, nodes := &pb.FollowClusterReply{Map: &pb.ClusterMap{}}, map[string]*node{}
	for number := range count {
		if left[number] {
			continue
		}
		one := &pb.ClusterServer{
			Id: fmt.Sprintf("c%04d", number), Roles: []string{"compute"}, State: "ready", Zone: string("xy"[number%2]),
		}
		if weight := float64(1 + number%3); weight > 1 {
			one.Weight = &weight
		}
		if number < drained {
			one.State = "draining"
		}
		state.Servers, nodes[one.Id] = append(state.Servers, one), &node{address: one.Id}
	}
	return state, nodes
}

// TestServersOfGroupsAreKeptThroughChanges compares what is kept with what is found anew, while servers come, go and drain.
func TestServersOfGroupsAreKeptThroughChanges(t *testing.T) {
	for _, zone := range []string{"", "x"} {
		ranks, left := newRanking(), map[int]bool{}
		for round := range 60 {
			left[round*7%40] = round%3 != 0
			state, nodes := someState(40+round%4, round%5, left)
			kept, anew := newRoutes(state, nodes, zone, ranks), newRoutes(state, nodes, zone, newRanking())
			for group := range 30 {
				name := fmt.Sprintf("t|%d|", group)
				all := anew.ranked(name, anew.computes, zone)
				found := kept.firstReaders(name, &pb.ClusterPlacement{})
				if len(found) < sparesMin+1 || !slices.Equal(found, all[:len(found)]) {
					t.Fatalf("zone %q, round %d: %s is read at %v, not %v", zone, round, name, found, all)
				}
			}
		}
	}
}

// TestAChangeCostsAGroupThatIsKeptSomeHashes counts the groups that are ranked among all servers.
func TestAChangeCostsAGroupThatIsKeptSomeHashes(t *testing.T) {
	ranks := newRanking()
	state, nodes := someState(1000, 0, nil)
	newRoutes(state, nodes, "", ranks).firstReaders("t|ann|", &pb.ClusterPlacement{})
	owner := ranks.groups["t|ann|"].first[0].id
	for _, server := range ranks.servers {
		server.keyed = nil // Hashing with it would end the test.
	}
	state.Servers = slices.DeleteFunc(state.Servers, func(one *pb.ClusterServer) bool { return one.Id == owner })
	found := newRoutes(state, nodes, "", ranks).firstReaders("t|ann|", &pb.ClusterPlacement{})
	if len(found) != ranksKept-1 || found[0].address == owner {
		t.Error("one has gone, and the others are", len(found))
	}
}

// TestDifferencesLeadToTheStateThatIsTold applies what has changed to what was known.
func TestDifferencesLeadToTheStateThatIsTold(t *testing.T) {
	first, _ := someState(5, 0, nil)
	first.Map.Version = 1
	reply := &pb.FollowClusterReply{IsDifference: true, Gone: []string{"c0001"}, Servers: []*pb.ClusterServer{
		{Id: "c0002", State: "draining"}, {Id: "c0000a", State: "ready"},
	}}
	told := after(after(nil, first), reply)
	ids := []string{}
	for _, one := range told.Servers {
		ids = append(ids, one.Id+" "+one.State)
	}
	wanted := []string{"c0000 ready", "c0000a ready", "c0002 draining", "c0003 ready", "c0004 ready"}
	if !slices.Equal(ids, wanted) || told.Map.Version != 1 || len(first.Servers) != 5 {
		t.Error("it leads to", ids)
	}
	mapped := after(told, &pb.FollowClusterReply{IsDifference: true, Map: &pb.ClusterMap{Version: 2}})
	if mapped.Map.Version != 2 || len(mapped.Servers) != 5 || after(told, first) != first {
		t.Error("a map, or a whole state, is taken wrong")
	}
}

// TestHomesAreFoundAmongManyRanges looks at the bounds of ten thousand ranges.
func TestHomesAreFoundAmongManyRanges(t *testing.T) {
	state, nodes := someState(1, 0, nil)
	for number := range 10_000 {
		first, last := fmt.Sprintf("p|%06d", 2*number), fmt.Sprintf("p|%06d", 2*number+1)
		state.Map.HomeRanges = append(state.Map.HomeRanges, &pb.ClusterHomeRange{
			First: []byte(first), Last: []byte(last), Group: string("ab"[number%2]),
		})
	}
	state.Map.HomeRanges = append(state.Map.HomeRanges, &pb.ClusterHomeRange{First: []byte("z"), Group: "c"})
	r := newRoutes(state, nodes, "", newRanking())
	for key, wanted := range map[string]string{
		"p|000000": "a", "p|000000|x": "a", "p|000001": "", "p|000002": "b", "p|019998|": "b", "p|019999": "", "a": "",
		"z": "c", "~": "c",
	} {
		if group, is := r.homeGroup(key); group != wanted || is != (wanted != "") {
			t.Errorf("%q is of %q", key, group)
		}
	}
}

// BenchmarkReaders finds the servers of a group that is new, and of one that is known, among a thousand.
func BenchmarkReaders(b *testing.B) {
	state, nodes := someState(1000, 0, nil)
	ranks := newRanking()
	r := newRoutes(state, nodes, "", ranks)
	b.Run("new", func(b *testing.B) {
		for number := range b.N {
			r.firstReaders(fmt.Sprintf("t|%d|", number), &pb.ClusterPlacement{})
		}
	})
	b.Run("known", func(b *testing.B) {
		for range b.N {
			r.firstReaders("t|1|", &pb.ClusterPlacement{})
		}
	})
	b.Run("state", func(b *testing.B) {
		for range b.N {
			newRoutes(state, nodes, "", ranks).firstReaders("t|1|", &pb.ClusterPlacement{})
		}
	})
}

func TestTokensAreMerged(t *testing.T) {
	entry := func(database string, position byte) string { return database + string([]byte{0, position}) }
	one, other := Token{"\x01" + entry("aaaa", 7) + entry("cccc", 1)}, Token{"\x01" + entry("aaaa", 5) + entry("bbbb", 9)}
	merged := Token{"\x01" + entry("aaaa", 7) + entry("bbbb", 9) + entry("cccc", 1)}
	if one.Merge(other) != merged || other.Merge(one) != merged || (Token{}).Merge(one) != one || one.Merge(Token{}) != one {
		t.Fatal(fmt.Sprintf("%q", one.Merge(other).raw), "and", fmt.Sprintf("%q", other.Merge(one).raw))
	}
}

func TestSessionsAddWhatTheyHaveSeen(t *testing.T) {
	one, other := Token{"\x01aaaa\x00\x07"}, Token{"\x01bbbb\x00\x09"}
	client := &Client{seen: &seen{token: one}}
	session := client.Session(one)
	if client.added(nil) != nil || client.Session(Token{}).added(nil) != nil {
		t.Error("a read asks for a level that nobody has asked for")
	}
	if got := session.added(nil); string(got.GetAfter()) != one.raw || got.WaitMs != nil {
		t.Error("a read of a session asks for", got)
	}
	if got := session.added(After(other).Within(5e9).level); string(got.GetAfter()) != one.Merge(other).raw || got.GetWaitMs() != 5000 {
		t.Error("a read after a token asks for", got)
	}
	for _, level := range []Freshness{Any, Latest, MaxAge(0)} {
		if got := session.added(level.level); got != level.level {
			t.Error("a read asks for", got, "in place of", level.level)
		}
	}
	session.seen.note([]byte(other.raw))
	if session.Token() != one.Merge(other) || client.Token() != one {
		t.Error("a session has seen", session.Token(), "and its client", client.Token())
	}
}

func TestPrefixesEnd(t *testing.T) {
	for prefix, end := range map[string]string{"t|": "t}", "a\xff": "b", "\xff\xff": "", "": ""} {
		if PrefixEnd(prefix) != end {
			t.Errorf("%q ends at %q", prefix, PrefixEnd(prefix))
		}
	}
}
