package main

import (
	"encoding/binary"
	"errors"
	"io"
	"time"
)

const (
	greeting   = 128 // bytes that Tarantool sends first
	sizePrefix = 5   // of every packet: 0xce and its length
	codeAt     = 3   // in a packet: a map of three, key 0, 0xce, and then the code
)

// selectRows sends a ready-made SELECT and reads its rows without looking at them, as `send` does with pages.
func (c *client) selectRows(request *wireRequest) (int, []byte, error) {
	conn, err := c.connect(request.address)
	if err != nil {
		return 0, nil, err
	}
	status, err := c.askRows(conn, request)
	if err != nil {
		conn.Close()
		delete(c.conns, request.address)
	}
	return status, nil, err
}

func (c *client) askRows(conn *connection, request *wireRequest) (int, error) {
	if err := conn.SetDeadline(time.Now().Add(c.timeout)); err != nil {
		return 0, err
	}
	if !conn.greeted {
		if _, err := conn.reader.Discard(greeting); err != nil {
			return 0, err
		}
		conn.greeted = true
	}
	written, err := conn.Write(request.body)
	c.sent += int64(written)
	if err != nil {
		return 0, err
	}
	var head [sizePrefix + codeAt + 4]byte
	if _, err := io.ReadFull(conn.reader, head[:]); err != nil {
		return 0, err
	}
	size := int(binary.BigEndian.Uint32(head[1:])) - codeAt - 4
	if head[0] != 0xce || size < 0 {
		return 0, errors.New("not a packet of Tarantool")
	}
	discarded, err := conn.reader.Discard(size)
	c.received += int64(discarded)
	if code := binary.BigEndian.Uint32(head[sizePrefix+codeAt:]); code != 0 {
		return 500, err
	}
	return 200, err
}
