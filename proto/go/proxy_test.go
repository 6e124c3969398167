package pequod_test

import (
	"io"
	"net"
	"sync"
	"testing"

	"pequod"
)

// proxy passes bytes between clients and a server, and fails when a test says so.
type proxy struct {
	listener net.Listener
	server   string
	mutex    sync.Mutex
	// isMute has it swallow what the server says; isClosed refuses connections.
	isMute, isClosed bool
	connections      []net.Conn
}

// through returns a client of a server behind a proxy.
func through(t *testing.T, server string, options *pequod.Options) (*proxy, *pequod.Client) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: listener, server: server}
	go p.accept()
	client, err := pequod.Dial(listener.Addr().String(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.Close()
		_ = listener.Close()
		p.cut(true)
	})
	return p, client
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.server)
		p.mutex.Lock()
		if err != nil || p.isClosed {
			_ = client.Close()
			if err == nil {
				_ = server.Close()
			}
		} else {
			p.connections = append(p.connections, client, server)
			go p.pass(client, server, false)
			go p.pass(server, client, true)
		}
		p.mutex.Unlock()
	}
}

func (p *proxy) pass(from, to net.Conn, isReply bool) {
	defer from.Close()
	defer to.Close()
	buffer := make([]byte, 65536)
	for {
		count, err := from.Read(buffer)
		p.mutex.Lock()
		isMute := isReply && p.isMute
		p.mutex.Unlock()
		if !isMute && count > 0 {
			if _, err := to.Write(buffer[:count]); err != nil {
				return
			}
		}
		if err != nil && err != io.EOF || count == 0 {
			return
		}
	}
}

func (p *proxy) mute() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.isMute = true
}

// cut breaks all connections; the next ones are as they should be, or refused.
func (p *proxy) cut(isClosed bool) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.isMute, p.isClosed = false, isClosed
	for _, one := range p.connections {
		_ = one.Close()
	}
	p.connections = nil
}

// open takes connections again.
func (p *proxy) open() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.isClosed = false
}
