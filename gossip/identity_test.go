package gossip

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// testCA is an authority that signs whatever a test needs.
type testCA struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newTestCA(t testing.TB) *testCA {
	t.Helper()
	ca := &testCA{t: t, cert: &x509.Certificate{
		Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}}
	ca.cert.NotBefore, ca.cert.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	_, ca.pem, _ = ca.sign(ca.cert)
	block, _ := pem.Decode(ca.pem)
	var err error
	if ca.cert, err = x509.ParseCertificate(block.Bytes); err != nil {
		t.Fatal(err)
	}
	return ca
}

// sign makes a certificate, of itself when it is the authority's.
func (ca *testCA) sign(c *x509.Certificate) (key *ecdsa.PrivateKey, certPEM, keyPEM []byte) {
	ca.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		ca.t.Fatal(err)
	}
	if c.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62)); err != nil {
		ca.t.Fatal(err)
	}
	if ca.key == nil {
		ca.key = key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, ca.cert, &key.PublicKey, ca.key)
	if err != nil {
		ca.t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		ca.t.Fatal(err)
	}
	return key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
}

// member makes a member's certificate, which change may spoil.
func (ca *testCA) member(name string, change func(*x509.Certificate)) (certPEM, keyPEM []byte) {
	c := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if change != nil {
		change(c)
	}
	_, certPEM, keyPEM = ca.sign(c)
	return certPEM, keyPEM
}

func (ca *testCA) identity(name string) *Identity {
	ca.t.Helper()
	cert, key := ca.member(name, nil)
	id, err := NewIdentity(name, cert, key, ca.pem, nil)
	if err != nil {
		ca.t.Fatal(err)
	}
	return id
}

func expired(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }

// TestIdentity_complaints: what the other members would refuse is refused at
// home, by the name of the key that it stands under.
func TestIdentity_complaints(t *testing.T) {
	ca, other := newTestCA(t), newTestCA(t)
	cert, key := ca.member("edge-a", nil)
	_, strange := ca.member("edge-a", nil)
	with := func(name string, change func(*x509.Certificate)) func() ([]byte, []byte, []byte) {
		return func() ([]byte, []byte, []byte) {
			c, k := ca.member(name, change)
			return c, k, ca.pem
		}
	}
	of := func(c, k, a []byte) func() ([]byte, []byte, []byte) {
		return func() ([]byte, []byte, []byte) { return c, k, a }
	}
	for _, tc := range []struct {
		name string
		of   func() (cert, key, ca []byte)
		want string
	}{
		{"no certificate", of([]byte("x"), key, ca.pem), "cert_file: there is no certificate in it"},
		{"the key for the certificate", of(key, key, ca.pem), "cert_file: there is no certificate in it"},
		{"a certificate that is none", of([]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), key, ca.pem), "cert_file: the certificate can't be read"},
		{"no key", of(cert, nil, ca.pem), "key_file: it is not the private key of cert_file"},
		{"another one's key", of(cert, strange, ca.pem), "key_file: it is not the private key of cert_file"},
		{"no authority", of(cert, key, nil), "ca_file: there is no certificate in it"},
		{"a member for the authority", of(cert, key, cert), "ca_file: certificate 1, \"CN=edge-a\", is not an authority's"},
		{"the key among the authorities", of(cert, key, append(append([]byte{}, ca.pem...), key...)), "ca_file: it has a \"PRIVATE KEY\""},
		{"another authority", of(cert, key, other.pem), "want one that ca_file has signed"},
		{"another name", with("edge-b", nil), "want the node's name, \"edge-a\""},
		{"expired", with("edge-a", expired), "expired"},
		{"not valid yet", with("edge-a", func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) }), "not yet valid"},
		{"for servers only", with("edge-a", func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[:1] }), "want one for servers and clients"},
		{"for clients only", with("edge-a", func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[1:] }), "want one for servers and clients"},
	} {
		c, k, a := tc.of()
		if _, err := NewIdentity("edge-a", c, k, a, nil); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
	if _, err := NewIdentity("10.0.0.1", cert, key, ca.pem, nil); err == nil || !strings.Contains(err.Error(), "IP address") {
		t.Errorf("an address for a name: %v", err)
	}
	if id, err := NewIdentity("edge-a", cert, key, append(append([]byte{}, other.pem...), ca.pem...), nil); err != nil {
		t.Errorf("two authorities: %v", err)
	} else if d := time.Until(id.NotAfter()); d < 55*time.Minute || d > time.Hour {
		t.Errorf("valid for %v", d)
	}
}

// TestCluster_overTLS: members replicate over TLS, and who cannot prove who it
// is gets nothing, though it has the cluster's key.
func TestCluster_overTLS(t *testing.T) {
	checkLeaks(t)
	ca, other := newTestCA(t), newTestCA(t)
	ida, idb := ca.identity("a"), ca.identity("b")
	a := mustStart(t, "a", nil, func(c *Config) { c.TLS = ida })
	b := mustStart(t, "b", []string{a.Addr()}, func(c *Config) { c.TLS = idb })
	a.filters[0].Add(key(1))
	b.filters[0].Add(key(2))
	eventually(t, 10*time.Second, "the filters are replicated", func() bool {
		return a.Lookup(0, key(2)).Contains("b") && b.Lookup(0, key(1)).Contains("a")
	})
	for reason, n := range a.Stats().Refused {
		if n != 0 {
			t.Errorf("%d members refused: %s", n, reason)
		}
	}

	signer, err := newAuthenticator("b", [][]byte{testKey})
	if err != nil {
		t.Fatal(err)
	}
	// ask makes a signed request of a, as b, with that certificate.
	ask := func(scheme string, cert, key []byte) (int, error) {
		cfg := &tls.Config{InsecureSkipVerify: true}
		if cert != nil {
			pair, err := tls.X509KeyPair(cert, key)
			if err != nil {
				t.Fatal(err)
			}
			cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
		}
		tr := &http.Transport{TLSClientConfig: cfg}
		defer tr.CloseIdleConnections()
		r, err := http.NewRequest("GET", scheme+"://"+a.cfg.PeerAddr+pathSnapshot+"?part=hot", nil)
		if err != nil {
			t.Fatal(err)
		}
		signer.sign(r, nil)
		resp, err := tr.RoundTrip(r)
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close()
		io.Copy(io.Discard, resp.Body)
		return resp.StatusCode, nil
	}
	good, goodKey := ca.member("b", nil)
	if status, err := ask("https", good, goodKey); status != 200 {
		t.Fatalf("b is answered %d, %v", status, err)
	}
	wrongCA, wrongCAKey := other.member("b", nil)
	old, oldKey := ca.member("b", expired)
	wrongName, wrongNameKey := ca.member("c", nil)
	servers, serversKey := ca.member("b", func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[:1] })
	for _, tc := range []struct {
		name, scheme string
		cert, key    []byte
		reason       string
	}{
		{"in clear", "http", nil, nil, refusedPlain},
		{"without a certificate", "https", nil, nil, refusedNoCert},
		{"of another authority", "https", wrongCA, wrongCAKey, refusedAuthority},
		{"expired", "https", old, oldKey, refusedExpired},
		{"of another name", "https", wrongName, wrongNameKey, refusedName},
		{"not for clients", "https", servers, serversKey, refusedPurpose},
	} {
		before := a.Stats().Refused[tc.reason]
		if status, err := ask(tc.scheme, tc.cert, tc.key); status == 200 {
			t.Errorf("%s: it is answered %d, %v", tc.name, status, err)
		}
		if n := a.Stats().Refused[tc.reason] - before; n != 1 {
			t.Errorf("%s: %d refusals are counted as %s: %v", tc.name, n, tc.reason, a.Stats().Refused)
		}
	}
}

// TestIdentity_server: a member that pulls gives nothing to, and takes nothing
// from, a server that is not the one it means.
func TestIdentity_server(t *testing.T) {
	checkLeaks(t)
	ca, other := newTestCA(t), newTestCA(t)
	id := ca.identity("a")
	for _, tc := range []struct {
		name   string
		ca     *testCA
		of     string
		change func(*x509.Certificate)
		reason string
	}{
		{"the one it means", ca, "b", nil, ""},
		{"of another authority", other, "b", nil, refusedAuthority},
		{"expired", ca, "b", expired, refusedExpired},
		{"of another name", ca, "c", nil, refusedName},
	} {
		cert, key := tc.ca.member(tc.of, tc.change)
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}})
		if err != nil {
			t.Fatal(err)
		}
		asked := 0
		s := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }), ErrorLog: log.New(io.Discard, "", 0)}
		go s.Serve(l)
		before := id.refusals()[tc.reason]
		c := newClient(nil, id, func(string) string { return "b" })
		resp, err := c.Get("https://" + l.Addr().String())
		if err == nil {
			resp.Body.Close()
		}
		c.CloseIdleConnections()
		s.Close()
		if (err == nil) != (tc.reason == "") || (asked > 0) != (tc.reason == "") {
			t.Errorf("%s: %v, it was asked %d times", tc.name, err, asked)
		}
		if n := id.refusals()[tc.reason] - before; tc.reason != "" && n != 1 {
			t.Errorf("%s: counted %d times as %s", tc.name, n, tc.reason)
		}
	}
	c := newClient(nil, id, func(string) string { return "" })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	silent := &http.Server{Handler: http.NotFoundHandler(), ErrorLog: log.New(io.Discard, "", 0)}
	go silent.Serve(ca.identity("b").Listener(l))
	defer silent.Close()
	if _, err := c.Get("https://" + l.Addr().String()); err == nil {
		t.Error("an address that no member has is asked")
	}
}

// TestIdentity_isExchanged: another authority takes over while members run,
// first beside the old one and then alone.
func TestIdentity_isExchanged(t *testing.T) {
	checkLeaks(t)
	old, next := newTestCA(t), newTestCA(t)
	a, b := old.identity("a"), old.identity("b")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), ErrorLog: log.New(io.Discard, "", 0)}
	go s.Serve(a.Listener(l))
	defer s.Close()
	ask := func() error {
		c := newClient(nil, b, func(string) string { return "a" })
		defer c.CloseIdleConnections()
		r, err := http.NewRequestWithContext(context.Background(), "GET", "https://"+l.Addr().String(), nil)
		if err != nil {
			return err
		}
		resp, err := c.Do(r)
		if err == nil {
			resp.Body.Close()
		}
		return err
	}
	use := func(id *Identity, by *testCA, trusted ...*testCA) error {
		cert, key := by.member(id.name, nil)
		var pems []byte
		for _, ca := range trusted {
			pems = append(pems, ca.pem...)
		}
		return id.Use(cert, key, pems)
	}
	for i, step := range []struct {
		do   func() error
		want bool // to be understood
	}{
		{func() error { return nil }, true},
		{func() error { return use(a, next, next) }, false}, // at once, and nobody understands
		{func() error { return use(a, old, old, next) }, true},
		{func() error { return use(b, next, old, next) }, true},
		{func() error { return use(a, next, next) }, true},
		{func() error { return use(b, next, next) }, true},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		if err := ask(); (err == nil) != step.want {
			t.Errorf("step %d: %v", i, err)
		}
	}
	if err := use(a, old, next); err == nil {
		t.Error("a certificate that the authority has not signed is taken")
	}
	if err := ask(); err != nil {
		t.Errorf("after one that was refused: %v", err)
	}
}
