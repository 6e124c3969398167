// Judges histories of concurrent clients: whether each is one that a store could give which does one thing at a time.
//
// Histories come as JSON lines on standard input; see history.py for their form. For each that is no such history, its
// name is printed; the last line has the count of all.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strconv"
	"time"

	"github.com/anishathalye/porcupine"
)

const (
	keyCount   = 4
	lineMax    = 1 << 24
	judgeTimes = 60 * time.Second
)

// The values of all keys; an empty one is absent.
type state [keyCount]string

type input struct {
	Kind     string `json:"kind"`
	Key      int    `json:"key"`
	Other    int    `json:"other"`
	Value    string `json:"value"`
	Expected string `json:"expected"`
	Number   int64  `json:"number"`
}

type output struct {
	// Whether the outcome is not known: the call has failed, and may have been done at any later moment, or never.
	Unknown bool     `json:"unknown"`
	Met     bool     `json:"met"`
	Values  []string `json:"values"`
}

type operation struct {
	input
	Client  int    `json:"client"`
	Call    int64  `json:"call"`
	Return  int64  `json:"return"`
	Outcome output `json:"outcome"`
}

type history struct {
	Name       string      `json:"name"`
	Operations []operation `json:"operations"`
}

// Returns the number that a value is, 0 for an absent one.
func numberOf(value string) int64 {
	if value == "" {
		return 0
	}
	number, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		panic(fmt.Sprintf("%q is no number", value))
	}
	return number
}

func sum(value string, number int64) string {
	return strconv.FormatInt(numberOf(value)+number, 10)
}

// Returns what a store gives, and its state then.
func apply(before state, in input) (output, state) {
	after, present := before, before[in.Key]
	switch in.Kind {
	case "get":
		return output{Values: []string{present}}, after
	case "put":
		after[in.Key] = in.Value
		return output{}, after
	case "put_if":
		if present != in.Expected {
			return output{Values: []string{present}}, after
		}
		after[in.Key] = in.Value
		return output{Met: true}, after
	case "add":
		after[in.Key] = sum(present, in.Number)
		return output{Values: []string{after[in.Key]}}, after
	case "transfer":
		// An absent value is no number, which is higher than none.
		if present == "" || numberOf(present) <= in.Number {
			return output{Values: []string{present}}, after
		}
		after[in.Key] = sum(present, -in.Number)
		after[in.Other] = sum(after[in.Other], in.Number)
		return output{Met: true, Values: []string{after[in.Key], after[in.Other]}}, after
	}
	panic("there is no operation " + in.Kind)
}

func same(one, other output) bool {
	if one.Met != other.Met || len(one.Values) != len(other.Values) {
		return false
	}
	for at := range one.Values {
		if one.Values[at] != other.Values[at] {
			return false
		}
	}
	return true
}

var store = porcupine.Model{
	Init: func() interface{} { return state{} },
	Step: func(before, in, out interface{}) (bool, interface{}) {
		given, after := apply(before.(state), in.(input))
		told := out.(output)
		return told.Unknown || same(given, told), after
	},
}

func operationsOf(one history) []porcupine.Operation {
	found := make([]porcupine.Operation, 0, len(one.Operations))
	for _, each := range one.Operations {
		end := each.Return
		if each.Outcome.Unknown {
			// One that was never done is done after all others, where nobody sees it.
			end = math.MaxInt64
		}
		found = append(found, porcupine.Operation{
			ClientId: each.Client, Input: each.input, Call: each.Call, Output: each.Outcome, Return: end,
		})
	}
	return found
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, lineMax)
	count := 0
	for lines.Scan() {
		var one history
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			fmt.Fprintln(os.Stderr, "no history:", err)
			os.Exit(2)
		}
		if result := porcupine.CheckOperationsTimeout(store, operationsOf(one), judgeTimes); result != porcupine.Ok {
			fmt.Printf("%s %s\n", result, one.Name)
		}
		count++
	}
	if err := lines.Err(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	fmt.Println(count)
}
