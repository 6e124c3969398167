package pequod

import (
	"context"
	"iter"
	"maps"
	"slices"
	"time"

	pb "pequod/v1"
)

// WatchOptions are settings of a watch; nil stands for the zero value.
type WatchOptions struct {
	// Rows has the first event hold the rows of the range.
	Rows bool
	// Progress has an event come after each such time without changes.
	Progress time.Duration
	// Reconnect is how long the watch tries to reach a server again: 0 is 30 s.
	Reconnect time.Duration
	// After continues after an event of an earlier watch of the range.
	After *Event
}

// Event is what happened in a watched range up to a revision.
type Event struct {
	ServerID, Revision uint64
	Token              Token
	Rows               []Row
	Changes            []Change
}

// Change is a key's value before and after, nil where there is none.
type Change struct {
	Key      string
	Old, New []byte
	// Expired says that the key's deadline has come.
	Expired bool
}

// watch is a watch on its way over servers.
type watch struct {
	client  *Client
	request *pb.WatchRequest
	wants   bool
	yield   func(*Event, error) bool
	// copied are the rows, where another server may have to go on.
	copied map[string][]byte
	last   *Event
	heard  time.Time
	isOver bool
}

// Watch yields what happens in a range: first an event as soon as the watch stands, then one for each change of its rows
// or several. It goes on after an interruption without a gap, in a cluster at another server, with the difference as one
// event. An error is the last that it yields: after WatchCompactedError begin anew, with the rows.
func (c *Client) Watch(ctx context.Context, over Range, options *WatchOptions) iter.Seq2[*Event, error] {
	if options == nil {
		options = &WatchOptions{}
	}
	return func(yield func(*Event, error) bool) {
		w := &watch{client: c, wants: options.Rows, yield: yield, heard: time.Now()}
		w.request = &pb.WatchRequest{Freshness: c.added(c.level), ProgressMs: uint32(options.Progress.Milliseconds())}
		w.request.First, w.request.Last = over.bounds()
		w.request.Rows = options.Rows || c.isCluster && options.After == nil
		if options.After != nil {
			w.request.After = &pb.Header{ServerId: options.After.ServerID, Revision: options.After.Revision}
		}
		reconnect := options.Reconnect
		if reconnect == 0 {
			reconnect = 30 * time.Second
		}
		if failed := w.run(ctx, reconnect); failed != nil && !w.isOver {
			yield(nil, failed)
		}
	}
}

// run follows one server after another, until the caller has enough or none can go on.
func (w *watch) run(ctx context.Context, reconnect time.Duration) *Error {
	for tries := 1; ; tries++ {
		nodes, failed := w.client.candidates(ctx, reads(string(w.request.First)))
		if failed != nil {
			return failed
		}
		failed = gone(w.client.target + ": no server of it answers reads")
		for _, n := range nodes {
			before := w.heard
			failed = n.try(ctx, guarded(w.client.isCluster, quiet), w.follow)
			switch {
			case w.isOver:
				return nil
			case failed.Reason != ReasonUnavailable && (failed.Reason != ReasonWatchCompacted || !w.client.isCluster):
				return failed
			case w.client.isCluster && w.request.After != nil && w.last != nil:
				return refusal(failed.Code, ReasonWatchCompacted, "its server went away: "+failed.Message)
			case w.heard != before:
				tries = 0
			}
			w.goOn()
		}
		away := w.last != nil && time.Since(w.heard) > reconnect
		if away || w.last == nil && tries > w.client.options.Retries || !wait(ctx, pause(max(tries, 1))) {
			return failed
		}
	}
}

// goOn has the request ask for what follows the last event.
func (w *watch) goOn() {
	switch {
	case w.last == nil || w.client.isCluster && w.request.After != nil:
	case w.client.isCluster:
		w.request.Freshness = After(w.last.Token).level
	default:
		w.request.Rows, w.request.Freshness = false, nil
		w.request.After = &pb.Header{ServerId: w.last.ServerID, Revision: w.last.Revision}
	}
}

// follow yields the events of one server.
func (w *watch) follow(ctx context.Context, n *node) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(w.client.options.Timeout, func() { cancel(context.DeadlineExceeded) })
	defer late.Stop()
	stream, err := n.stub.Watch(ctx, w.request)
	var rows []Row
	isReady := false
	for err == nil {
		var reply *pb.WatchReply
		if reply, err = stream.Recv(); err != nil {
			break
		}
		rows = append(rows, rowsOf(reply.Keys, reply.Values)...)
		if isReady = isReady || reply.Ready; !isReady {
			continue
		}
		late.Stop()
		event := &Event{ServerID: reply.Header.ServerId, Revision: reply.Header.Revision, Token: Token{string(reply.Header.Token)}}
		for _, one := range reply.Changes {
			event.Changes = append(event.Changes, Change{string(one.Key), one.Old, one.New, one.Reason == pb.Change_EXPIRED})
		}
		isAgain := reply.Ready && w.last != nil
		w.take(event, rows, reply.Ready)
		rows = nil
		w.client.seen.note(reply.Header.Token)
		w.last, w.heard = event, time.Now()
		if isAgain && w.copied == nil {
			continue // Its changes follow.
		}
		if w.isOver = !w.yield(event, nil); w.isOver {
			return nil
		}
	}
	if context.Cause(ctx) == context.DeadlineExceeded {
		return context.DeadlineExceeded
	}
	return err
}

// take brings the copy of the rows up to date; rows that come again become the changes since the last event.
func (w *watch) take(event *Event, rows []Row, isReady bool) {
	if isReady && w.wants && w.last == nil {
		event.Rows = append([]Row{}, rows...)
	}
	if !w.request.Rows || !w.client.isCluster {
		return
	}
	if isReady {
		before := w.copied
		w.copied = map[string][]byte{}
		for _, row := range rows {
			w.copied[row.Key] = row.Value
		}
		if w.last != nil {
			both := maps.Clone(before)
			maps.Copy(both, w.copied)
			for _, key := range slices.Sorted(maps.Keys(both)) {
				if old, now := before[key], w.copied[key]; string(old) != string(now) || (old == nil) != (now == nil) {
					event.Changes = append(event.Changes, Change{Key: key, Old: old, New: now})
				}
			}
		}
		return
	}
	for _, one := range event.Changes {
		if one.New == nil {
			delete(w.copied, one.Key)
		} else {
			w.copied[one.Key] = one.New
		}
	}
}
