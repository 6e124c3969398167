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
		r := newRoutes(state, nodes, one.Zone)
		names := func(nodes []*node) (found []string) {
			for _, n := range nodes {
				found = append(found, ids[n])
			}
			return found
		}
		for _, key := range one.Keys {
			if found := names(r.readers(string(key.Key))); !slices.Equal(found, key.Readers) {
				t.Errorf("state %d: %q is read at %v, not %v", number, key.Key, found, key.Readers)
			}
			// The computes that follow are for homes that are away.
			if found := names(r.writers(string(key.Key))); !slices.Equal(found[:len(key.Writers)], key.Writers) {
				t.Errorf("state %d: %q is written at %v, not %v", number, key.Key, found, key.Writers)
			}
		}
	}
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
