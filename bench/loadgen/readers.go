package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const (
	catchUp   = 60 * time.Second // how long readers may take for the rest, once the operations are done
	pollWait  = 25
	eventLine = 256 * 1024
)

// Readers wait for messages of a subject while the operations run, each on a connection of its own.
type Readers struct {
	Count   int               `json:"count"`
	URL     string            `json:"url"` // .../subscribe?limit=100
	Headers map[string]string `json:"headers"`
	Stream  bool              `json:"stream"` // Server-Sent Events; else one long poll after the other
	Expect  bool              `json:"expect"` // every reader must see exactly what the operations publish
}

// sighting is a message that a reader has got.
type sighting struct {
	sequence int64
	at       time.Time
}

type reader struct {
	of     *Readers
	client *client
	conn   atomic.Pointer[connection] // to be closed by others
	seen   atomic.Int64
	list   []sighting // kept when of.Expect
	failed error
}

// audience is all readers of a plan.
type audience struct {
	readers []*reader
	ended   sync.WaitGroup
	closing atomic.Bool
}

// gather connects every reader and returns when each of them will miss nothing that is published from now on.
func gather(plan *Plan) (*audience, error) {
	a := &audience{}
	for i := range plan.Readers {
		for range plan.Readers[i].Count {
			a.readers = append(a.readers, &reader{of: &plan.Readers[i], client: newClient(pollWait * 2 * time.Second)})
		}
	}
	ready := make(chan error, len(a.readers))
	waiting := make(chan struct{}, 64) // not more at once: a listening queue is finite
	for _, r := range a.readers {
		waiting <- struct{}{}
		a.ended.Add(1)
		go func() {
			defer a.ended.Done()
			began := func(err error) {
				ready <- err
				<-waiting
			}
			if r.of.Stream {
				r.failed = r.stream(a, began)
			} else {
				r.failed = r.poll(a, began)
			}
		}()
	}
	for range a.readers {
		if err := <-ready; err != nil {
			a.close()
			return nil, fmt.Errorf("reader: %w", err)
		}
	}
	if len(a.readers) > 0 {
		time.Sleep(time.Duration(plan.Settle * float64(time.Second)))
	}
	return a, nil
}

func (r *reader) saw(sequence int64, at time.Time) {
	if r.of.Expect {
		r.list = append(r.list, sighting{sequence, at})
	}
	r.seen.Add(1)
}

func (r *reader) connect(request *wireRequest) (*connection, error) {
	conn, err := r.client.connect(request.address)
	if err == nil {
		r.conn.Store(conn)
	}
	return conn, err
}

// stream reads events until it is closed; `began` is told when the first one, where it will begin, is there.
func (r *reader) stream(a *audience, began func(error)) error {
	request, err := newWireRequest(http.MethodGet, r.of.URL, r.of.Headers, 0)
	var conn *connection
	if err == nil {
		conn, err = r.connect(request)
	}
	if err == nil {
		_, err = conn.Write(request.head)
	}
	if err != nil {
		began(err)
		return err
	}
	response, err := http.ReadResponse(conn.reader, nil)
	if err == nil && response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 300))
		err = fmt.Errorf("status %d: %s", response.StatusCode, text)
	}
	if err != nil {
		began(err)
		return err
	}
	lines := bufio.NewReaderSize(response.Body, eventLine)
	var id int64
	for known := false; ; {
		line, err := lines.ReadSlice('\n')
		if err == nil && bytes.HasPrefix(line, []byte("event: error")) {
			err = errors.New("the stream said `event: error`")
		}
		if err != nil {
			if !known {
				began(err)
			}
			if a.closing.Load() {
				return nil
			}
			return err
		}
		switch {
		case bytes.HasPrefix(line, []byte("id: ")):
			id, _ = strconv.ParseInt(string(bytes.TrimSpace(line[4:])), 10, 64)
			if !known {
				known = true
				began(nil)
			}
		case bytes.HasPrefix(line, []byte("event: message")):
			r.saw(id, time.Now())
		}
	}
}

// poll asks again and again, each time from where the answer before ended.
func (r *reader) poll(a *audience, began func(error)) error {
	next, wait := "new", 0
	for first := true; ; first = false {
		url := r.of.URL + "&start=" + next + "&wait=" + strconv.Itoa(wait)
		request, err := newWireRequest(http.MethodGet, url, r.of.Headers, 0)
		var status int
		var body []byte
		if err == nil {
			_, err = r.connect(request)
		}
		if err == nil {
			status, body, err = r.client.send(request, nil, true)
		}
		at := time.Now()
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("status %d: %.300s", status, body)
		}
		if first {
			began(err)
		}
		if err != nil {
			if a.closing.Load() {
				return nil
			}
			return err
		}
		for _, text := range fieldValues(body, "sequence") {
			sequence, _ := strconv.ParseInt(text, 10, 64)
			r.saw(sequence, at)
		}
		next, wait = fieldValue(body, "next_sequence"), pollWait
	}
}

// catchUp waits until every reader that must has seen `count` messages.
func (a *audience) catchUp(count int) {
	for until := time.Now().Add(catchUp); time.Now().Before(until); time.Sleep(2 * time.Millisecond) {
		missing := false
		for _, r := range a.readers {
			missing = missing || r.of.Expect && r.seen.Load() < int64(count)
		}
		if !missing {
			return
		}
	}
}

func (a *audience) close() {
	a.closing.Store(true)
	for _, r := range a.readers {
		if conn := r.conn.Load(); conn != nil {
			conn.Close()
		}
	}
	a.ended.Wait()
}
