package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"strings"
	"sync/atomic"

	"github.com/magiconair/properties"
	"github.com/pingcap/go-ycsb/pkg/prop"
	"pequod"
)

// database keeps a record of YCSB as one row a field, TABLE|KEY|FIELD: an update of a field is one put, a record is read
// by the keys of its fields, and records one after the other are a scan.
type database struct {
	client *pequod.Client
	table  string
	fields int
	// How many calls have failed, or read a record that was lost.
	failed atomic.Int64
}

func dial(target string, settings *properties.Properties) (*database, error) {
	client, err := pequod.Dial(target, nil)
	if err != nil {
		return nil, err
	}
	table := settings.GetString(prop.TableName, prop.TableNameDefault)
	return &database{client: client, table: table, fields: settings.GetInt(prop.FieldCount, 10)}, nil
}

func (d *database) ToSqlDB() *sql.DB { return nil }

func (d *database) Close() error {
	d.client.Close()
	return nil
}

func (d *database) InitThread(ctx context.Context, _ int, _ int) context.Context { return ctx }

func (d *database) CleanupThread(context.Context) {}

func (d *database) Read(ctx context.Context, table, key string, fields []string) (map[string][]byte, error) {
	keys := make([]string, len(fields))
	for at, field := range fields {
		keys[at] = rowOf(table, key, field)
	}
	values, err := d.client.MultiGet(ctx, keys...)
	if err != nil {
		return nil, d.note(err)
	}
	record := make(map[string][]byte, len(fields))
	for at, value := range values {
		if value == nil {
			return nil, d.note(fmt.Errorf("lost: %s", keys[at]))
		}
		record[fields[at]] = value
	}
	return record, nil
}

// Scan has at least one record, that which it begins at: all others that YCSB asks for were inserted.
func (d *database) Scan(
	ctx context.Context, table, start string, count int, fields []string,
) ([]map[string][]byte, error) {
	over := pequod.Range{First: rowOf(table, start, ""), Prefix: table + "|"}
	rows, err := d.client.Rows(ctx, over, &pequod.ScanOptions{Limit: count * d.fields})
	if err != nil {
		return nil, d.note(err)
	}
	names, records, err := recordsOf(rows)
	switch {
	case err != nil:
		return nil, d.note(err)
	case len(names) == 0 || names[0] != start:
		return nil, d.note(fmt.Errorf("a scan at %s begins with %v", start, names))
	case len(names) > count:
		return nil, d.note(fmt.Errorf("a scan of %d records has %d", count, len(names)))
	}
	for _, record := range records {
		for _, field := range fields {
			if record[field] == nil && len(record) == d.fields {
				return nil, d.note(fmt.Errorf("a scan at %s has no %s", start, field))
			}
		}
	}
	return records, nil
}

func (d *database) Update(ctx context.Context, table, key string, values map[string][]byte) error {
	rows := make([]pequod.Row, 0, len(values))
	for field, value := range values {
		rows = append(rows, pequod.Row{Key: rowOf(table, key, field), Value: value})
	}
	return d.note(d.client.MultiPut(ctx, rows, nil))
}

func (d *database) Insert(ctx context.Context, table, key string, values map[string][]byte) error {
	return d.Update(ctx, table, key, values)
}

func (d *database) Delete(ctx context.Context, table, key string) error {
	_, err := d.client.RemoveRange(ctx, pequod.Range{Prefix: rowOf(table, key, "")})
	return d.note(err)
}

// check prints how many records there are; it fails if one of them is not whole.
func (d *database) check(ctx context.Context) error {
	rows, err := d.client.Rows(ctx, pequod.Range{Prefix: d.table + "|"}, nil)
	if err != nil {
		return err
	}
	names, records, err := recordsOf(rows)
	if err != nil {
		return err
	}
	for at, record := range records {
		if len(record) != d.fields {
			return fmt.Errorf("%s has %d fields, not %d", names[at], len(record), d.fields)
		}
	}
	fmt.Println(len(records), "records")
	return nil
}

// note counts an error, prints the first one, and returns it: go-ycsb goes on.
func (d *database) note(err error) error {
	if err != nil && d.failed.Add(1) == 1 {
		fmt.Fprintln(os.Stderr, err)
	}
	return err
}

func rowOf(table, key, field string) string { return table + "|" + key + "|" + field }

// recordsOf returns the names of records, in the order of their rows, and their fields.
func recordsOf(rows []pequod.Row) (names []string, records []map[string][]byte, err error) {
	for _, row := range rows {
		parts := strings.Split(row.Key, "|")
		if len(parts) != 3 {
			return nil, nil, fmt.Errorf("%q is no row of a record", row.Key)
		}
		last := len(names) - 1
		switch {
		case last < 0 || names[last]+"|" < parts[1]+"|":
			names, records = append(names, parts[1]), append(records, map[string][]byte{})
		case names[last] != parts[1]:
			return nil, nil, fmt.Errorf("%s comes after %s", parts[1], names[last])
		}
		records[len(records)-1][parts[2]] = row.Value
	}
	return names, records, nil
}
