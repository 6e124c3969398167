package pequod_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"pequod"
	pb "pequod/v1"
)

type step struct {
	Call, In, Save string
	Args           arguments
	Reply, Error   json.RawMessage
}

// TestConformance runs the script of conformance against the server of PEQUOD_TARGET, as its README.md says.
func TestConformance(t *testing.T) {
	file := os.Getenv("PEQUOD_CASES")
	if file == "" {
		t.Skip("PEQUOD_CASES names no script")
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var script struct {
		Version int
		Cases   []struct {
			Name  string
			Steps []step
		}
	}
	if err := json.Unmarshal(text, &script); err != nil || script.Version != 1 || len(script.Cases) == 0 {
		t.Fatal("this is no script that is known here:", err)
	}
	client := dial(t)
	for _, one := range script.Cases {
		t.Run(one.Name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
			defer cancel()
			empty(ctx, t, client)
			r := &runner{ctx: ctx, client: client, tokens: map[string]pequod.Token{}, sessions: map[string]*pequod.Client{},
				watches: map[string]*watched{}}
			defer r.end()
			for number, step := range one.Steps {
				if wrong := r.wrong(&step); wrong != "" {
					t.Fatalf("step %d, %s: %s", number+1, step.Call, wrong)
				}
			}
		})
	}
}

func dial(t *testing.T) *pequod.Client {
	t.Helper()
	target := os.Getenv("PEQUOD_TARGET")
	if target == "" {
		t.Skip("PEQUOD_TARGET names no server")
	}
	client, err := pequod.Dial(target, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func empty(ctx context.Context, t *testing.T, client *pequod.Client) {
	t.Helper()
	joins, err := client.Joins(ctx)
	for _, join := range slices.Backward(joins) {
		err = errors.Join(err, client.DropJoin(ctx, join.Name))
	}
	_, failed := client.RemoveRange(ctx, pequod.Range{})
	if err := errors.Join(err, failed); err != nil {
		t.Fatal(err)
	}
}

// watched is a watch of a case.
type watched struct {
	next func() (*pequod.Event, error, bool)
	stop func()
	over pequod.Range
	last *pequod.Event
}

func (w *watched) begin(ctx context.Context, client *pequod.Client, options *pequod.WatchOptions) (*pequod.Event, error) {
	w.next, w.stop = iter.Pull2(client.Watch(ctx, w.over, options))
	return w.event()
}

func (w *watched) event() (*pequod.Event, error) {
	event, err, _ := w.next()
	if err == nil {
		w.last = event
	}
	return event, err
}

// runner runs the steps of one case.
type runner struct {
	ctx      context.Context
	client   *pequod.Client
	tokens   map[string]pequod.Token
	sessions map[string]*pequod.Client
	watches  map[string]*watched
	page     *pequod.Range
}

func (r *runner) end() {
	for _, watch := range r.watches {
		watch.stop()
	}
}

// wrong returns how the outcome of a step differs from the expected one, in words.
func (r *runner) wrong(s *step) string {
	client := r.client
	if s.In != "" {
		client = r.sessions[s.In]
	}
	reply, err := r.call(client, s)
	if s.Save != "" {
		r.tokens[s.Save] = client.Token()
	}
	if err != nil {
		if s.Error == nil {
			return "it failed: " + err.Error()
		}
		return differing(plain(errorOf(err)), plain(s.Error), "the error")
	}
	if s.Error != nil {
		return fmt.Sprintf("it has the reply %v, and no error", reply)
	}
	if s.Reply == nil {
		return ""
	}
	return differing(plain(reply), plain(s.Reply), "the reply")
}

// call makes the call of a step, and returns its reply in the script's form.
func (r *runner) call(client *pequod.Client, s *step) (any, error) {
	ctx, a := r.ctx, s.Args
	if level := a.raw("freshness"); level != nil && s.Call != "batch" {
		freshness, err := r.freshness(level)
		if err != nil {
			return nil, err
		}
		client = client.At(freshness)
	}
	if slices.Contains([]string{"get", "put", "remove", "add", "expire", "persist", "ttl", "count"}, s.Call) {
		return r.command(client, s.Call, a)
	}
	switch s.Call {
	case "multi_get":
		keys := []string{}
		for _, one := range a.list("keys") {
			keys = append(keys, string(bytesOf(one)))
		}
		got, err := client.MultiGet(ctx, keys...)
		return texts(got), err
	case "multi_put":
		rows := []pequod.Row{}
		for _, one := range a.list("rows") {
			pair := one.([]any)
			rows = append(rows, pequod.Row{Key: string(bytesOf(pair[0])), Value: bytesOf(pair[1])})
		}
		return nil, client.MultiPut(ctx, rows, a.put())
	case "remove_range":
		return pair(client.RemoveRange(ctx, a.over()))
	case "scan":
		got, err := client.Rows(ctx, a.over(), a.scan())
		return rows(got), err
	case "keys":
		options, keys := a.scan(), []any{}
		options.KeysOnly = true
		for row, err := range client.Scan(ctx, a.over(), options) {
			if err != nil {
				return nil, err
			}
			keys = append(keys, text([]byte(row.Key)))
		}
		return keys, nil
	case "scan_page":
		over := a.over()
		if a.is("resume") {
			over = *r.page
		}
		page, err := client.Page(ctx, over, a.scan())
		r.page = page.Next
		return map[string]any{"rows": rows(page.Rows), "has_more": page.Next != nil}, err
	case "splits":
		first, last := bounds(a)
		request := &pb.SplitsRequest{First: first, Last: last, Count: uint64(a.number("count"))}
		got, err := pb.NewPequodClient(client).Splits(ctx, request)
		return texts(got.GetKeys()), err
	case "transaction":
		return r.transaction(client, a)
	case "batch":
		return r.batch(client, a)
	case "session":
		r.sessions[a.text("as")] = client.Session(r.tokens[a.text("token")])
		return nil, nil
	case "watch", "changes", "resume", "unwatch":
		return r.watch(client, s)
	case "add_join":
		joins, err := client.AddJoin(ctx, a.text("text"))
		return messages(joins), err
	case "drop_join":
		return nil, client.DropJoin(ctx, a.text("name"))
	case "joins":
		joins, err := client.Joins(ctx)
		return messages(joins), err
	case "explain_join", "explain_range", "invalidate_join", "invalidate_range", "statistics":
		return generated(ctx, pb.NewPequodClient(client), s.Call, a)
	}
	return nil, fmt.Errorf("this runner has no call %q", s.Call)
}

// generated makes a call of the generated stub, over the client.
func generated(ctx context.Context, stub pb.PequodClient, call string, a arguments) (any, error) {
	first, last := bounds(a)
	over := &pb.Range{First: first, Last: last}
	switch call {
	case "explain_join":
		got, err := stub.Explain(ctx, &pb.ExplainRequest{Subject: &pb.ExplainRequest_Join{Join: a.text("name")}})
		return message(got.GetJoin()), err
	case "explain_range":
		got, err := stub.Explain(ctx, &pb.ExplainRequest{Subject: &pb.ExplainRequest_Range{Range: over}})
		return message(got.GetRange()), err
	case "invalidate_join":
		got, err := stub.Invalidate(ctx, &pb.InvalidateRequest{Subject: &pb.InvalidateRequest_Join{Join: a.text("name")}})
		return got.GetContexts(), err
	case "invalidate_range":
		got, err := stub.Invalidate(ctx, &pb.InvalidateRequest{Subject: &pb.InvalidateRequest_Range{Range: over}})
		return got.GetContexts(), err
	}
	got, err := stub.Stats(ctx, &pb.StatsRequest{})
	return message(got), err
}

func bounds(a arguments) (first, last []byte) {
	first, last = a.bytes("first"), a.bytes("last")
	if prefix := a.bytes("prefix"); prefix != nil {
		return prefix, []byte(pequod.PrefixEnd(string(prefix)))
	}
	return first, last
}

func pair[T any](value T, err error) (any, error) { return value, err }

// command makes the single call that batches have as a command.
func (r *runner) command(client *pequod.Client, call string, a arguments) (any, error) {
	ctx, key := r.ctx, a.key()
	condition, isIf := a.condition()
	switch {
	case call == "get":
		got, err := client.Get(ctx, key)
		return text(got), err
	case call == "put" && isIf:
		got, err := client.PutIf(ctx, key, a.bytes("value"), condition, a.put())
		return outcome(got.Met, got.Present), err
	case call == "put":
		return nil, client.Put(ctx, key, a.bytes("value"), a.put())
	case call == "remove" && isIf:
		got, err := client.RemoveIf(ctx, key, condition)
		return outcome(got.Met, got.Present), err
	case call == "remove":
		return pair(client.Remove(ctx, key))
	case call == "add":
		got, err := client.Add(ctx, key, string(a.bytes("delta")))
		return text([]byte(got)), err
	case call == "expire":
		return pair(client.Expire(ctx, key, a.ttl()))
	case call == "persist":
		return pair(client.Persist(ctx, key))
	case call == "count":
		return pair(client.Count(ctx, a.over()))
	}
	left, found, err := client.TTL(ctx, key)
	return remaining(left, found), err
}

// add adds a command to a batch, and returns how its result looks in the script.
func add(b *pequod.Batch, call string, a arguments) func(pequod.Result) any {
	condition, isIf := a.condition()
	found := func(one pequod.Result) any { return one.Found }
	value := func(one pequod.Result) any { return text(one.Value) }
	switch {
	case call == "get":
		b.Get(a.key())
		return value
	case call == "put" && isIf:
		b.PutIf(a.key(), a.bytes("value"), condition, a.put())
	case call == "put":
		b.Put(a.key(), a.bytes("value"), a.put())
		return func(pequod.Result) any { return nil }
	case call == "remove" && isIf:
		b.RemoveIf(a.key(), condition)
	case call == "remove":
		b.Remove(a.key())
		return found
	case call == "add":
		b.Add(a.key(), string(a.bytes("delta")))
		return value
	case call == "expire":
		b.Expire(a.key(), a.ttl())
		return found
	case call == "persist":
		b.Persist(a.key())
		return found
	case call == "ttl":
		b.TTL(a.key())
		return func(one pequod.Result) any { return remaining(one.TTL, one.Found) }
	case call == "scan":
		b.Scan(a.over(), a.scan())
		return func(one pequod.Result) any { return rows(one.Rows) }
	case call == "count":
		b.Count(a.over())
		return func(one pequod.Result) any { return one.Count }
	}
	return func(one pequod.Result) any { return outcome(one.Met, one.Value) }
}

func (r *runner) batch(client *pequod.Client, a arguments) (any, error) {
	batch, shown := &pequod.Batch{}, []func(pequod.Result) any{}
	for _, one := range a.list("commands") {
		command := one.(map[string]any)
		args := argumentsOf(command["args"])
		raw := args.raw("freshness")
		if raw == nil {
			raw = a.raw("freshness")
		}
		batch.At(pequod.Freshness{})
		if raw != nil {
			level, err := r.freshness(raw)
			if err != nil {
				return nil, err
			}
			batch.At(level)
		}
		shown = append(shown, add(batch, command["call"].(string), args))
	}
	results, err := client.Run(r.ctx, batch)
	found := []any{}
	for at, one := range results {
		if one.Err != nil {
			found = append(found, map[string]any{"error": errorOf(one.Err)})
		} else {
			found = append(found, map[string]any{"reply": shown[at](one)})
		}
	}
	return found, err
}

func (r *runner) transaction(client *pequod.Client, a arguments) (any, error) {
	var t pequod.Transaction
	for _, one := range a.list("compares") {
		t.If = append(t.If, compare(argumentsOf(one)))
	}
	shown := map[bool][]func(pequod.Result) any{}
	for _, one := range a.list("then") {
		command := one.(map[string]any)
		shown[true] = append(shown[true], add(&t.Then, command["call"].(string), argumentsOf(command["args"])))
	}
	for _, one := range a.list("otherwise") {
		command := one.(map[string]any)
		shown[false] = append(shown[false], add(&t.Else, command["call"].(string), argumentsOf(command["args"])))
	}
	held, results, err := client.Transact(r.ctx, &t)
	outcomes := []any{}
	for at, one := range results {
		outcomes = append(outcomes, shown[held][at](one))
	}
	return map[string]any{"held": held, "outcomes": outcomes}, err
}

func compare(a arguments) pequod.Compare {
	key, value := a.key(), a.bytes("value")
	switch a.text("is") {
	case "absent":
		return pequod.Absent(key)
	case "present":
		return pequod.Present(key)
	case "equal":
		return pequod.Equal(key, value)
	case "not_equal":
		return pequod.NotEqual(key, value)
	case "less":
		return pequod.Less(key, string(value))
	}
	return pequod.Greater(key, string(value))
}

func (r *runner) watch(client *pequod.Client, s *step) (any, error) {
	if s.Call == "watch" {
		w := &watched{over: s.Args.over()}
		r.watches[s.Args.text("as")] = w
		event, err := w.begin(r.ctx, client, &pequod.WatchOptions{Rows: s.Args.is("rows")})
		if err != nil || event.Rows == nil {
			return nil, err
		}
		return rows(event.Rows), nil
	}
	w := r.watches[s.Args.text("watch")]
	switch s.Call {
	case "unwatch":
		w.stop()
		return nil, nil
	case "resume":
		w.stop()
		_, err := w.begin(r.ctx, client, &pequod.WatchOptions{After: w.last})
		return nil, err
	}
	var expected, found []any
	_ = json.Unmarshal(s.Reply, &expected)
	for s.Error != nil || len(found) < len(expected) {
		event, err := w.event()
		if err != nil {
			return nil, err
		}
		for _, one := range event.Changes {
			reason := map[bool]string{true: "expired", false: "written"}[one.Expired]
			found = append(found, map[string]any{"key": text([]byte(one.Key)), "old": text(one.Old), "new": text(one.New), "reason": reason})
		}
	}
	return found, nil
}

func (r *runner) freshness(raw any) (pequod.Freshness, error) {
	a := argumentsOf(raw)
	var level pequod.Freshness
	switch {
	case a.raw("any") != nil:
		level = pequod.Any
	case a.raw("latest") != nil:
		level = pequod.Latest
	case a.raw("max_age_ms") != nil:
		level = pequod.MaxAge(time.Duration(a.number("max_age_ms")) * time.Millisecond)
	case a.raw("after") != nil:
		level = pequod.After(r.tokens[a.text("after")])
	default:
		token, err := pequod.TokenOf(a.bytes("token"))
		if err != nil {
			return level, err
		}
		level = pequod.After(token)
	}
	if a.raw("wait_ms") != nil {
		level = level.Within(time.Duration(a.number("wait_ms")) * time.Millisecond)
	}
	return level, nil
}

// arguments are those of a call, as the script has them.
type arguments map[string]any

func argumentsOf(value any) arguments {
	found, _ := value.(map[string]any)
	return found
}

func (a arguments) raw(name string) any { return a[name] }
func (a arguments) is(name string) bool { return a[name] == true }
func (a arguments) key() string         { return string(a.bytes("key")) }
func (a arguments) text(name string) string {
	found, _ := a[name].(string)
	return found
}
func (a arguments) number(name string) int {
	found, _ := a[name].(float64)
	return int(found)
}
func (a arguments) list(name string) []any {
	found, _ := a[name].([]any)
	return found
}
func (a arguments) bytes(name string) []byte { return bytesOf(a[name]) }
func (a arguments) ttl() time.Duration {
	return time.Duration(a.number("ttl_ms")) * time.Millisecond
}
func (a arguments) over() pequod.Range {
	return pequod.Range{First: string(a.bytes("first")), Last: string(a.bytes("last")), Prefix: string(a.bytes("prefix"))}
}
func (a arguments) put() *pequod.PutOptions {
	return &pequod.PutOptions{TTL: a.ttl(), KeepTTL: a.is("keep_ttl")}
}
func (a arguments) scan() *pequod.ScanOptions {
	options := &pequod.ScanOptions{Limit: a.number("limit"), Reverse: a.is("reverse")}
	if a.raw("limit") != nil && options.Limit == 0 {
		options.Limit = -1
	}
	return options
}
func (a arguments) condition() (pequod.Condition, bool) {
	condition := argumentsOf(a["condition"])
	switch condition.text("is") {
	case "absent":
		return pequod.IfAbsent, true
	case "present":
		return pequod.IfPresent, true
	case "value":
		return pequod.IfValue(condition.bytes("value")), true
	}
	return pequod.Condition{}, false
}

func bytesOf(value any) []byte {
	switch value := value.(type) {
	case string:
		return []byte(value)
	case map[string]any:
		if encoded, ok := value["base64"].(string); ok {
			found, err := base64.StdEncoding.DecodeString(encoded)
			if err != nil {
				panic(err)
			}
			return found
		}
		return []byte(strings.Repeat(value["repeat"].(string), int(value["times"].(float64))))
	}
	return nil
}

// What calls gave, as the script has it.

func text(value []byte) any {
	switch {
	case value == nil:
		return nil
	case utf8.Valid(value):
		return string(value)
	}
	return map[string]any{"base64": base64.StdEncoding.EncodeToString(value)}
}

func texts(values [][]byte) []any {
	found := []any{}
	for _, value := range values {
		found = append(found, text(value))
	}
	return found
}

func rows(given []pequod.Row) []any {
	found := []any{}
	for _, row := range given {
		found = append(found, []any{text([]byte(row.Key)), text(row.Value)})
	}
	return found
}

func outcome(met bool, present []byte) any {
	if met {
		return map[string]any{"met": true}
	}
	return map[string]any{"met": false, "present": text(present)}
}

func remaining(left time.Duration, found bool) any {
	switch {
	case !found:
		return nil
	case left == pequod.Forever:
		return "never"
	}
	return left.Milliseconds()
}

func errorOf(err error) any {
	var e *pequod.Error
	if !errors.As(err, &e) {
		return map[string]any{"code": "none", "reason": err.Error()}
	}
	code := strings.ToUpper(wordsOf(e.Code))
	return map[string]any{"code": code, "reason": string(e.Reason), "facts": e.Facts}
}

// wordsOf returns the name of a code with its words apart, as INVALID_ARGUMENT.
func wordsOf(code codes.Code) (words string) {
	for at, letter := range code.String() {
		if at > 0 && letter >= 'A' && letter <= 'Z' {
			words += "_"
		}
		words += string(letter)
	}
	return words
}

func messages[M proto.Message](given []M) []any {
	found := []any{}
	for _, one := range given {
		found = append(found, message(one))
	}
	return found
}

// message returns the fields of a message by their names in the contract.
func message(one proto.Message) any {
	if reflect.ValueOf(one).IsNil() {
		return nil
	}
	return fieldsOf(one.ProtoReflect())
}

func fieldsOf(one protoreflect.Message) any {
	found := map[string]any{}
	fields := one.Descriptor().Fields()
	for at := range fields.Len() {
		field := fields.Get(at)
		value := one.Get(field)
		switch {
		case field.IsList():
			items := []any{}
			for i := range value.List().Len() {
				items = append(items, valueOf(field, value.List().Get(i)))
			}
			found[string(field.Name())] = items
		case field.IsMap():
			entries := map[string]any{}
			for key, entry := range value.Map().Range {
				entries[key.String()] = valueOf(field.MapValue(), entry)
			}
			found[string(field.Name())] = entries
		case field.HasPresence() && !one.Has(field):
			found[string(field.Name())] = nil
		default:
			found[string(field.Name())] = valueOf(field, value)
		}
	}
	return found
}

func valueOf(field protoreflect.FieldDescriptor, value protoreflect.Value) any {
	switch field.Kind() {
	case protoreflect.MessageKind:
		return fieldsOf(value.Message())
	case protoreflect.BytesKind:
		return text(value.Bytes())
	}
	return value.Interface()
}

// plain returns a value as JSON has it.
func plain(value any) (found any) {
	data, err := json.Marshal(value)
	if err == nil {
		err = json.Unmarshal(data, &found)
	}
	if err != nil {
		panic(err)
	}
	return found
}

// differing returns where a value differs from the expected one, in words; empty if it matches.
func differing(found, expected any, place string) string {
	wrong := fmt.Sprintf("%s is %.300v, not %.300v", place, found, expected)
	switch expected := expected.(type) {
	case map[string]any:
		if _, ok := expected["repeat"]; ok {
			return differing(found, string(bytesOf(expected)), place)
		}
		if maximum, ok := expected["at_most"].(float64); ok {
			if number, ok := found.(float64); ok && 0 < number && number <= maximum {
				return ""
			}
			return wrong
		}
		if part, ok := expected["contains"].(string); ok {
			if text, ok := found.(string); ok && strings.Contains(text, part) {
				return ""
			}
			return wrong
		}
		fields, ok := found.(map[string]any)
		if !ok {
			return wrong
		}
		for name, one := range expected {
			other, ok := fields[name]
			if !ok {
				return wrong
			}
			if wrong := differing(other, one, place+"."+name); wrong != "" {
				return wrong
			}
		}
		return ""
	case []any:
		items, ok := found.([]any)
		if !ok || len(items) != len(expected) {
			return wrong
		}
		for at := range expected {
			if wrong := differing(items[at], expected[at], fmt.Sprintf("%s[%d]", place, at)); wrong != "" {
				return wrong
			}
		}
		return ""
	}
	if reflect.DeepEqual(found, expected) {
		return ""
	}
	return wrong
}
