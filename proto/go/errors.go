package pequod

import (
	"context"
	"encoding/hex"
	"errors"
	"io"
	"strconv"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Reason names a class of errors; docs/api.md lists them. It is an error, so that errors.Is finds it:
//
//	errors.Is(err, pequod.ReasonComputedKey)
type Reason string

func (r Reason) Error() string { return string(r) }

// serverStopping is the reason of a server that has done nothing, since it stops.
const serverStopping Reason = "ServerStopping"

// Error says why a call, or a command of a batch, has failed.
type Error struct {
	Code    codes.Code
	Reason  Reason
	Message string
	// Facts are what the server says of the reason, by name; bytes are in hexadecimal, as key_hex: see Bytes.
	Facts map[string]string
	// Unapplied says of UnavailableError that the call has certainly changed nothing.
	Unapplied bool
	cause     error
}

func (e *Error) Error() string {
	if e.Reason == "" {
		return e.Code.String() + ": " + e.Message
	}
	return string(e.Reason) + ": " + e.Message
}

// Is returns whether this is an error of a reason.
func (e *Error) Is(target error) bool { return e.Reason == target }

// Unwrap returns the error of the context, of gRPC or of the network behind this one.
func (e *Error) Unwrap() error { return e.cause }

// Bytes returns a fact that is bytes, such as the key; nil if there is none of the name.
func (e *Error) Bytes(name string) []byte {
	text, isKnown := e.Facts[name+"_hex"]
	if found, err := hex.DecodeString(text); isKnown && err == nil {
		return found
	}
	return nil
}

// number returns a fact that is a number, 0 if there is none.
func (e *Error) number(name string) (number uint64) {
	number, _ = strconv.ParseUint(e.Facts[name], 10, 64)
	return number
}

// isUnloaded returns whether a server lacks what a read needs while its homes are away.
func (e *Error) isUnloaded() bool {
	return e.Reason == ReasonBackingUnavailable || e.Reason == ReasonBackingStale
}

func refusal(code codes.Code, reason Reason, message string) *Error {
	return &Error{Code: code, Reason: reason, Message: message}
}

// errorOf returns the error of a call that was made with ctx; nil for nil.
func errorOf(ctx context.Context, err error) *Error {
	var known *Error
	if err == nil || errors.As(err, &known) || errors.As(context.Cause(ctx), &known) {
		return known
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	said, isSaid := status.FromError(err)
	if !isSaid {
		said = status.FromContextError(err)
	}
	e := &Error{Code: said.Code(), Message: said.Message(), cause: err}
	for _, detail := range said.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			e.Reason, e.Facts = Reason(info.Reason), info.Metadata
		}
	}
	switch {
	case e.Code == codes.DeadlineExceeded:
		e.Reason, e.cause = ReasonDeadlineExceeded, context.DeadlineExceeded
	case e.Reason == serverStopping:
		e.Reason, e.Unapplied = ReasonUnavailable, true
	case e.Reason != "":
	case e.Code == codes.ResourceExhausted:
		e.Reason = ReasonLimitExceeded
	case e.Code == codes.Unavailable, errors.Is(err, io.EOF), e.Code == codes.Canceled && ctx.Err() == nil:
		e.Code, e.Reason = codes.Unavailable, ReasonUnavailable
	}
	return e
}

// sent returns the error of a call that was made with ctx: one that has reached no server was not applied.
func sent(ctx context.Context, err error, isSent bool) error {
	failed := errorOf(ctx, err)
	if failed == nil {
		return nil
	}
	failed.Unapplied = failed.Unapplied || !isSent
	return failed
}
