package shield

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"
)

// certificate makes a self-signed one for 127.0.0.1, and the pool that trusts it.
func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
		DNSNames:     []string{"origin.example"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, roots
}

// startTLSOrigin is startOrigin over TLS.
func startTLSOrigin(t *testing.T, serve func(*peer)) (*rawOrigin, *tls.Config) {
	t.Helper()
	cert, roots := certificate(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o := &rawOrigin{url: "https://" + ln.Addr().String()}
	o.serve(t, tls.NewListener(holdingListener{ln}, &tls.Config{
		Certificates: []tls.Certificate{cert},
		NextProtos:   []string{"h2", "http/1.1"},
	}), serve)
	return o, &tls.Config{RootCAs: roots}
}

// holding is a connection that may hold back what is written, to send several
// records in one piece.
type holding struct {
	net.Conn
	hold bool
	held []byte
}

func (h *holding) Write(p []byte) (int, error) {
	if h.hold {
		h.held = append(h.held, p...)
		return len(p), nil
	}
	return h.Conn.Write(p)
}

func (h *holding) flush() {
	h.Conn.Write(h.held)
	h.hold, h.held = false, nil
}

type holdingListener struct{ net.Listener }

func (l holdingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return &holding{Conn: c}, err
}

// TestTLS_reuse: large and small bodies over one connection; TLS 1.3 sends
// session tickets after the handshake, which must not spoil it.
func TestTLS_reuse(t *testing.T) {
	big := strings.Repeat("0123456789abcdef", 20_000)
	o, cfg := startTLSOrigin(t, answers(ok+"Content-Length: 320000\r\n\r\n"+big))
	tr := client(t, TransportConfig{TLS: cfg})
	for range 10 {
		mustGet(t, tr, o.url, big)
	}
	if n := o.connections(); n != 1 {
		t.Errorf("%d connections for 10 requests", n)
	}
}

func TestTLS_untrustedCertificate(t *testing.T) {
	o, _ := startTLSOrigin(t, answers(hello))
	_, _, err := get(t, client(t, TransportConfig{}), o.url)
	wantError(t, err, Refused, PhaseConnect)
}

// TestTLS_surplusAnswer: in one record with the answer, in one piece with it,
// and later: it reaches nobody.
func TestTLS_surplusAnswer(t *testing.T) {
	wrong := strings.ReplaceAll(hello, "hello", "wrong")
	for name, say := range map[string]func(p *peer, told chan bool){
		"in one record": func(p *peer, _ chan bool) { p.say(hello + wrong) },
		"in the next record": func(p *peer, _ chan bool) {
			h := p.Conn.(*tls.Conn).NetConn().(*holding)
			h.hold = true
			p.say(hello)
			p.say(wrong)
			h.flush()
		},
		"later": func(p *peer, told chan bool) {
			p.say(hello)
			<-told
			p.say(wrong)
			told <- true
		},
	} {
		t.Run(name, func(t *testing.T) {
			told := make(chan bool)
			o, cfg := startTLSOrigin(t, func(p *peer) {
				p.request()
				say(p, told)
				p.untilClosed()
			})
			tr := client(t, TransportConfig{TLS: cfg})
			for i := range 10 {
				mustGet(t, tr, o.url, "hello")
				if name == "later" {
					told <- true
					<-told
				}
				if n := len(o.seen()); n != i+1 {
					t.Fatalf("%d requests sent, want %d", n, i+1)
				}
			}
		})
	}
}

// TestTLS_closeWithoutNotify: where only the close ends a body, one without
// close_notify may be anybody's (RFC 9112 section 9.8).
func TestTLS_closeWithoutNotify(t *testing.T) {
	for _, tc := range []struct {
		name string
		end  func(*peer)
		ok   bool
	}{
		{"close_notify", func(p *peer) { p.Close() }, true},
		{"none", func(p *peer) { p.Conn.(*tls.Conn).NetConn().Close() }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o, cfg := startTLSOrigin(t, func(p *peer) {
				p.request()
				p.say(ok + "\r\nhello")
				tc.end(p)
			})
			_, body, err := get(t, client(t, TransportConfig{TLS: cfg}), o.url)
			if body != "hello" {
				t.Errorf("%q", body)
			}
			if tc.ok {
				if err != nil {
					t.Error(err)
				}
				return
			}
			wantError(t, err, Truncated, PhaseBody)
		})
	}
}
