package pequod

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	pb "pequod/v1"
)

const tokenVersion, tokenPrefix = "\x01", "pq1."

// Token names a state that answered; the zero one demands nothing. It is a comparable value, and opaque.
type Token struct{ raw string }

// ParseToken returns the token that a text shows, as String has given it.
func ParseToken(text string) (Token, error) {
	encoded, ok := strings.CutPrefix(text, tokenPrefix)
	raw, err := base64.RawURLEncoding.Strict().DecodeString(encoded)
	if !ok || err != nil {
		raw = nil
	}
	return TokenOf(raw)
}

// TokenOf returns the token that the bytes of a message are.
func TokenOf(raw []byte) (Token, error) {
	token := Token{string(raw)}
	if token.entries() == nil {
		return Token{}, refusal(codes.InvalidArgument, ReasonInvalidToken, "this is no token; pass it on as a reply gave it")
	}
	return token, nil
}

// String returns the token as text, of characters that URLs and cookies take as they are; empty for the zero one.
func (t Token) String() string {
	if t.raw == "" {
		return ""
	}
	return tokenPrefix + base64.RawURLEncoding.EncodeToString([]byte(t.raw))
}

// mark names the history that positions belong to: a database, and its timeline.
type mark struct {
	database [4]byte
	timeline uint64
}

// entries returns how far each history has come; nil if these bytes are no token.
func (t Token) entries() map[mark]uint64 {
	raw, isToken := strings.CutPrefix(t.raw, tokenVersion)
	if !isToken {
		return nil
	}
	found, rest := map[mark]uint64{}, strings.NewReader(raw)
	for rest.Len() > 0 {
		var each mark
		_, err := io.ReadFull(rest, each.database[:])
		timeline, wrong := binary.ReadUvarint(rest)
		position, missing := binary.ReadUvarint(rest)
		if err != nil || wrong != nil || missing != nil {
			return nil
		}
		each.timeline = timeline
		found[each] = position
	}
	return found
}

// Merge returns the token of a state that has what both have.
func (t Token) Merge(other Token) Token {
	if other.raw == "" || other == t {
		return t
	}
	found, more := t.entries(), other.entries()
	if found == nil {
		return other
	}
	for each, position := range more {
		found[each] = max(position, found[each])
	}
	raw := []byte(tokenVersion)
	for _, each := range slices.SortedFunc(maps.Keys(found), func(one, two mark) int {
		return cmp.Or(bytes.Compare(one.database[:], two.database[:]), cmp.Compare(one.timeline, two.timeline))
	}) {
		raw = binary.AppendUvarint(append(raw, each.database[:]...), each.timeline)
		raw = binary.AppendUvarint(raw, found[each])
	}
	return Token{string(raw)}
}

// Freshness says how fresh the answers of reads have to be: see Client.At.
type Freshness struct{ level *pb.Freshness }

var (
	// Any takes what is there; a session steps out of its promises for it.
	Any = Freshness{&pb.Freshness{}}
	// Latest asks for everything that was committed when the read began.
	Latest = Freshness{&pb.Freshness{Level: &pb.Freshness_Latest{Latest: true}}}
)

// After asks for at least the state of a token.
func After(token Token) Freshness {
	return Freshness{&pb.Freshness{Level: &pb.Freshness_After{After: []byte(token.raw)}}}
}

// MaxAge asks for nothing older.
func MaxAge(age time.Duration) Freshness {
	return Freshness{&pb.Freshness{Level: &pb.Freshness_MaxAgeMs{MaxAgeMs: uint32(max(age.Milliseconds(), 0))}}}
}

// Within returns the same level for reads that wait for it at most this long, in place of a second.
func (f Freshness) Within(wait time.Duration) Freshness {
	return Freshness{&pb.Freshness{Level: f.level.GetLevel(), WaitMs: proto.Uint32(uint32(max(wait.Milliseconds(), 0)))}}
}

// seen is what a session has seen.
type seen struct {
	mutex sync.Mutex
	token Token
}

// note adds the token of a reply, and returns what has been seen by now.
func (s *seen) note(raw []byte) Token {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.token = s.token.Merge(Token{string(raw)})
	return s.token
}
