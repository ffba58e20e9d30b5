package gossip

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Identity is this member's certificate and the authority that vouches for all
// members: with one, requests between members travel over TLS 1.3, and each
// side proves its name. It adds to the signature by the cluster's key, which
// every member has, what that cannot give: that a member is the one that it
// says it is.
//
// Every certificate is checked against the present authorities and the present
// time, for the name of the member that is asked, or that says that it asks.
// There is no other chain than to the configured authorities, and no session is
// resumed.
//
// Its methods are safe for concurrent use. [Identity.Use] exchanges what it
// holds while it is in use: connections that stand go on with the old one.
type Identity struct {
	name    string
	log     *slog.Logger
	current atomic.Pointer[credentials]

	mu      sync.Mutex
	refused map[string]uint64
	logged  map[string]time.Time
}

type credentials struct {
	cert  tls.Certificate
	roots *x509.CertPool
}

// Why a connection was refused; also the labels of a counter.
const (
	refusedPlain     = "not_tls"
	refusedNoCert    = "no_certificate"
	refusedAuthority = "unknown_authority"
	refusedExpired   = "certificate_expired" // or not valid yet
	refusedName      = "wrong_name"
	refusedPurpose   = "certificate_unusable"
)

// identityRefusals lists all of them.
func identityRefusals() []string {
	return []string{refusedPlain, refusedNoCert, refusedAuthority, refusedExpired, refusedName, refusedPurpose}
}

// logRefusals is how often a refusal for one reason is logged.
const logRefusals = time.Minute

// NewIdentity returns the identity of the member with that name, of PEM files'
// contents: its certificate with what leads to the authority, the
// certificate's key, and the certificates of the authorities. It fails with an
// error that names cert_file, key_file or ca_file when the other members would
// not accept it: each must be able to check it for the member's name, as a
// server's and as a client's. A nil logger discards.
func NewIdentity(name string, certPEM, keyPEM, caPEM []byte, logger *slog.Logger) (*Identity, error) {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	id := &Identity{name: name, log: logger, refused: map[string]uint64{}, logged: map[string]time.Time{}}
	for _, r := range identityRefusals() {
		id.refused[r] = 0
	}
	return id, id.Use(certPEM, keyPEM, caPEM)
}

// Use exchanges certificate, key and authorities. With an error nothing changes.
func (id *Identity) Use(certPEM, keyPEM, caPEM []byte) error {
	c, err := id.check(certPEM, keyPEM, caPEM, time.Now())
	if err == nil {
		id.current.Store(c)
	}
	return err
}

func (id *Identity) check(certPEM, keyPEM, caPEM []byte, now time.Time) (*credentials, error) {
	if net.ParseIP(id.name) != nil {
		return nil, fmt.Errorf("cert_file: the node's name %q is an IP address, which no certificate of a member can have: give it another name", id.name)
	}
	roots, err := authorities(caPEM)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(certPEM)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, errors.New("cert_file: there is no certificate in it: want PEM, \"-----BEGIN CERTIFICATE-----\"")
	}
	if _, err := x509.ParseCertificate(block.Bytes); err != nil {
		return nil, fmt.Errorf("cert_file: the certificate can't be read: %w", err)
	}
	cert, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("key_file: it is not the private key of cert_file, in PEM: %w", err)
	}
	c := &credentials{cert, roots}
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		if reason, err := c.verify(c.chain(), id.name, usage, now); err != nil {
			hint := ""
			switch reason {
			case refusedName:
				hint = fmt.Sprintf(": want the node's name, %q, among its DNS names", id.name)
			case refusedAuthority:
				hint = ": want one that ca_file has signed, with the certificates between them"
			case refusedPurpose:
				hint = ": want one for servers and clients"
			}
			return nil, fmt.Errorf("cert_file: the other members would refuse it%s: %w", hint, err)
		}
	}
	return c, nil
}

// authorities reads PEM certificates, and nothing else.
func authorities(caPEM []byte) (*x509.CertPool, error) {
	roots, n := x509.NewCertPool(), 0
	for rest := caPEM; ; n++ {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("ca_file: it has a %q: want certificates only", block.Type)
		}
		ca, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("ca_file: certificate %d: %w", n+1, err)
		}
		if !ca.IsCA {
			return nil, fmt.Errorf("ca_file: certificate %d, %q, is not an authority's", n+1, ca.Subject)
		}
		roots.AddCert(ca)
	}
	if n == 0 {
		return nil, errors.New("ca_file: there is no certificate in it: want PEM, \"-----BEGIN CERTIFICATE-----\"")
	}
	return roots, nil
}

// chain is the own certificate and what leads to the authority.
func (c *credentials) chain() []*x509.Certificate {
	var chain []*x509.Certificate
	for _, der := range c.cert.Certificate {
		if x, err := x509.ParseCertificate(der); err == nil {
			chain = append(chain, x)
		}
	}
	return chain
}

// verify checks a chain for a member's name, any name if that is empty, and
// says why it is refused.
func (c *credentials) verify(chain []*x509.Certificate, name string, usage x509.ExtKeyUsage, now time.Time) (reason string, err error) {
	if len(chain) == 0 {
		return refusedNoCert, errors.New("there is no certificate")
	}
	between := x509.NewCertPool()
	for _, x := range chain[1:] {
		between.AddCert(x)
	}
	leaf := chain[0]
	_, err = leaf.Verify(x509.VerifyOptions{Roots: c.roots, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage}})
	var invalid x509.CertificateInvalidError
	switch {
	case err == nil:
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return refusedExpired, err
	case errors.As(err, &invalid):
		return refusedPurpose, err
	default:
		return refusedAuthority, err
	}
	if name != "" {
		if err := leaf.VerifyHostname(name); err != nil {
			return refusedName, err
		}
	}
	return "", nil
}

// NotAfter is until when the own certificate is valid.
func (id *Identity) NotAfter() time.Time { return id.current.Load().chain()[0].NotAfter }

// Listener makes a listener speak TLS to members only. What the connection is
// not allowed is known when it is first read from.
func (id *Identity) Listener(l net.Listener) net.Listener {
	return tls.NewListener(plainSpotter{l, id}, &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{"http/1.1"}, SessionTicketsDisabled: true,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &id.current.Load().cert, nil },
		// The library would refuse what has no certificate or a wrong one
		// without a word to us, so we do it.
		ClientAuth:       tls.RequestClientCert,
		VerifyConnection: func(s tls.ConnectionState) error { return id.accept(s, "", x509.ExtKeyUsageClientAuth) },
	})
}

// ClientConfig is for connections to members. ServerName is to be the name of
// the member, whatever its address.
func (id *Identity) ClientConfig() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{"http/1.1"},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &id.current.Load().cert, nil },
		// VerifyConnection does it, with authorities that can be exchanged.
		InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			if s.ServerName == "" {
				return id.refuse(refusedName, "", errors.New("no member's name is expected"))
			}
			return id.accept(s, s.ServerName, x509.ExtKeyUsageServerAuth)
		},
	}
}

func (id *Identity) accept(s tls.ConnectionState, name string, usage x509.ExtKeyUsage) error {
	reason, err := id.current.Load().verify(s.PeerCertificates, name, usage, time.Now())
	if err == nil {
		return nil
	}
	subject := ""
	if len(s.PeerCertificates) > 0 {
		subject = s.PeerCertificates[0].Subject.String()
	}
	return id.refuse(reason, subject, err)
}

// is reports whether a connection is of the member with that name.
func (id *Identity) is(s *tls.ConnectionState, name string) error {
	switch {
	case s == nil:
		return id.refuse(refusedPlain, name, errors.New("not over TLS"))
	case len(s.PeerCertificates) == 0:
		return id.refuse(refusedNoCert, name, errors.New("there is no certificate"))
	}
	if err := s.PeerCertificates[0].VerifyHostname(name); err != nil {
		return id.refuse(refusedName, s.PeerCertificates[0].Subject.String(), err)
	}
	return nil
}

// refuse counts and, now and then, logs.
func (id *Identity) refuse(reason, subject string, err error) error {
	id.mu.Lock()
	id.refused[reason]++
	now := time.Now()
	say := now.Sub(id.logged[reason]) >= logRefusals
	if say {
		id.logged[reason] = now
	}
	id.mu.Unlock()
	if say {
		id.log.Error("a member's connection was refused", "reason", reason, "certificate", fmt.Sprintf("%.200q", subject), "error", err,
			"hint", "compare the members' cluster.tls")
	}
	return fmt.Errorf("%s: %w", reason, err)
}

// refusals returns the counts by reason.
func (id *Identity) refusals() map[string]uint64 {
	id.mu.Lock()
	defer id.mu.Unlock()
	out := make(map[string]uint64, len(id.refused))
	for k, v := range id.refused {
		out[k] = v
	}
	return out
}

// plainSpotter counts the connections that do not begin as TLS does.
type plainSpotter struct {
	net.Listener
	id *Identity
}

func (s plainSpotter) Accept() (net.Conn, error) {
	c, err := s.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &spottedConn{Conn: c, id: s.id}, nil
}

type spottedConn struct {
	net.Conn
	id   *Identity
	seen bool // tls.Conn reads from one goroutine at a time
}

// recordHandshake is the first byte of every TLS connection (RFC 8446 §5.1).
const recordHandshake = 22

func (c *spottedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && !c.seen {
		c.seen = true
		if p[0] != recordHandshake {
			return 0, c.id.refuse(refusedPlain, c.RemoteAddr().String(), errors.New("the connection is not TLS"))
		}
	}
	return n, err
}

// CloseWrite is needed by whoever ends a connection in good order.
func (c *spottedConn) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return nil
}
