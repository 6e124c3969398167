// Runs workloads of YCSB against a server of Pequod, with the workloads, distributions and measures of go-ycsb:
//
//	ycsb load TARGET -P workloads/a -p recordcount=1000
//	ycsb run TARGET -P workloads/a -p dataintegrity=true
//	ycsb check TARGET -P workloads/a
//
// `check` reads all records, and says how many there are and which are not whole. The exit code is 1 if a call has
// failed, a record was lost, or a value is not the one that go-ycsb writes there.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/magiconair/properties"
	"github.com/pingcap/go-ycsb/pkg/client"
	"github.com/pingcap/go-ycsb/pkg/measurement"
	"github.com/pingcap/go-ycsb/pkg/prop"
	_ "github.com/pingcap/go-ycsb/pkg/workload"
	"github.com/pingcap/go-ycsb/pkg/ycsb"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(words []string) error {
	if len(words) < 2 {
		return fmt.Errorf("ycsb load|run|check TARGET [-P FILE] [-p NAME=VALUE]")
	}
	settings, err := settingsOf(words[2:])
	if err != nil {
		return err
	}
	db, err := dial(words[1], settings)
	if err != nil {
		return err
	}
	defer db.Close()
	ctx := context.Background()
	switch words[0] {
	case "load":
		settings.Set(prop.DoTransactions, "false")
	case "run":
		settings.Set(prop.DoTransactions, "true")
	case "check":
		return db.check(ctx)
	default:
		return fmt.Errorf("ycsb load, run or check, not %q", words[0])
	}
	measurement.InitMeasure(settings)
	workload, err := ycsb.GetWorkloadCreator(settings.GetString(prop.Workload, "core")).Create(settings)
	if err != nil {
		return err
	}
	defer workload.Close()
	client.NewClient(settings, workload, client.DbWrapper{DB: db}).Run(ctx)
	measurement.Output()
	if failed := db.failed.Load(); failed > 0 {
		return fmt.Errorf("%d calls have failed", failed)
	}
	return nil
}

// settingsOf reads properties from files and from the command line, of which the last one counts.
func settingsOf(words []string) (*properties.Properties, error) {
	settings := properties.NewProperties()
	for ; len(words) > 1; words = words[2:] {
		switch words[0] {
		case "-P":
			read, err := properties.LoadFile(words[1], properties.UTF8)
			if err != nil {
				return nil, err
			}
			settings.Merge(read)
		case "-p":
			name, value, isSet := strings.Cut(words[1], "=")
			if !isSet {
				return nil, fmt.Errorf("-p takes NAME=VALUE, not %q", words[1])
			}
			settings.Set(name, value)
		default:
			return nil, fmt.Errorf("there is no option %q", words[0])
		}
	}
	if len(words) > 0 {
		return nil, fmt.Errorf("%q has no value", words[0])
	}
	return settings, nil
}
