// Command peers locks with redsync or rueidislock, told what to do line by line. The command is listed in
// interop/src/peer.rs.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// How long a call may take after the end of the time that is measured.
const patience = 10 * time.Second

// Takes the lock of a name, and returns what lets go of it; nothing if it did not get the lock in time.
type locker func(limit context.Context, name string) func()

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func withRedsync(address string, lease time.Duration) locker {
	client := redis.NewClient(&redis.Options{Addr: address, PoolSize: 64})
	sync := redsync.New(goredis.NewPool(client))
	return func(limit context.Context, name string) func() {
		mutex := sync.NewMutex(name, redsync.WithExpiry(lease), redsync.WithTries(1<<30))
		if err := mutex.LockContext(limit); limit.Err() != nil {
			return nil
		} else {
			fail(err)
		}
		return func() {
			_, err := mutex.Unlock()
			fail(err)
		}
	}
}

func withRueidislock(address string, lease time.Duration) locker {
	locks, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: []string{address}},
		KeyMajority:    1,
		KeyValidity:    lease,
		NoLoopTracking: true,
	})
	fail(err)
	return func(limit context.Context, name string) func() {
		_, cancel, err := locks.WithContext(limit, name)
		if limit.Err() != nil {
			return nil
		}
		fail(err)
		return cancel
	}
}

func bench(lock locker, name string, threads int, run, hold time.Duration) string {
	all := make([][]int64, threads)
	var group sync.WaitGroup
	var stuck atomic.Bool
	limit, stop := context.WithTimeout(context.Background(), run+patience)
	defer stop()
	for thread := range threads {
		own := name
		if strings.HasSuffix(name, ":") {
			own += strconv.Itoa(thread)
		}
		group.Add(1)
		go func() {
			defer group.Done()
			for begun := time.Now(); time.Since(begun) < run; {
				call := time.Now()
				unlock := lock(limit, own)
				if unlock == nil {
					stuck.Store(true)
					return
				}
				all[thread] = append(all[thread], time.Since(call).Nanoseconds())
				if hold > 0 {
					time.Sleep(hold)
				}
				unlock()
			}
		}()
	}
	group.Wait()
	if stuck.Load() {
		return "stuck"
	}
	waits := slices.Concat(all...)
	slices.Sort(waits)
	if len(waits) == 0 {
		return "done 0 0 0"
	}
	return fmt.Sprintf("done %d %d %d", len(waits), waits[len(waits)/2], waits[len(waits)*99/100])
}

func number(text string) int {
	value, err := strconv.Atoi(text)
	fail(err)
	return value
}

func main() {
	library, address := os.Args[1], os.Args[2]
	lease := time.Duration(number(os.Args[3])) * time.Millisecond
	lock := withRedsync
	if library == "rueidislock" {
		lock = withRueidislock
	}
	locks := lock(address, lease)
	for input := bufio.NewScanner(os.Stdin); input.Scan(); {
		words := strings.Split(input.Text(), " ")
		run := time.Duration(number(words[3])) * time.Millisecond
		hold := time.Duration(number(words[4])) * time.Microsecond
		fmt.Println(bench(locks, words[1], number(words[2]), run, hold))
	}
}
