package edge

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"time"
)

// testAuthority signs members' certificates.
type testAuthority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newTestAuthority(t *testing.T) *testAuthority {
	a := &testAuthority{t: t}
	c := &x509.Certificate{
		Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	a.cert = c
	a.pem, _ = a.sign(c)
	block, _ := pem.Decode(a.pem)
	var err error
	if a.cert, err = x509.ParseCertificate(block.Bytes); err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *testAuthority) sign(c *x509.Certificate) (cert, key []byte) {
	a.t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	if a.key == nil {
		a.key = k
	}
	if c.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62)); err != nil {
		a.t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, &k.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		a.t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
}

func (a *testAuthority) member(name string) *ClusterTLS {
	cert, key := a.sign(&x509.Certificate{
		DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	return &ClusterTLS{Cert: cert, Key: key, CA: a.pem}
}

func (n *Node) refusals(t *testing.T, reason string) uint64 {
	t.Helper()
	v, ok := n.gossip.Stats().Refused[reason]
	if !ok {
		t.Errorf("%s is not counted", reason)
	}
	return v
}

// TestPeerTLS: members with certificates ask each other for stored responses
// over TLS, and nobody who has none.
func TestPeerTLS(t *testing.T) {
	ca, other := newTestAuthority(t), newTestAuthority(t)
	o := newOrigin(t, content)
	var cfgs []Config
	nodes := startCluster(t, 2, o.URL, func(c *Config) {
		c.Cluster.TLS = ca.member(c.Name)
		cfgs = append(cfgs, *c)
	})
	// asked has b get from a what a has. On a busy machine a peer may take
	// longer than it is waited for, and the origin is quicker.
	tried := 0
	asked := func(path string) {
		t.Helper()
		eventually(t, "b gets it from a", func() bool {
			tried++
			path := fmt.Sprintf("%s/%d", path, tried)
			nodes[0].get(t, path).want(t, 200, path)
			k := nodes[1].keyOf("http://www.example.com" + path)
			eventually(t, "b has heard of it", func() bool { return nodes[1].gossip.Lookup(0, k.Filter).Contains("edge-a") })
			a := nodes[1].get(t, path)
			a.want(t, 200, path)
			return strings.Contains(a.cacheStatus(), "edge-a; hit; ttl=") && strings.Contains(a.cacheStatus(), "detail=peer")
		})
	}
	nodes[0].get(t, "/a").want(t, 200, "/a")
	asked("/a")

	get := func(scheme string, t2 *ClusterTLS) (int, error) {
		conf := &tls.Config{InsecureSkipVerify: true}
		if t2 != nil {
			pair, err := tls.X509KeyPair(t2.Cert, t2.Key)
			if err != nil {
				t.Fatal(err)
			}
			conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
		}
		tr := &http.Transport{TLSClientConfig: conf}
		defer tr.CloseIdleConnections()
		r, err := http.NewRequest("GET", scheme+"://"+nodes[0].Addrs().Peer+"/a", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = "www.example.com"
		r.Header.Set("Cache-Control", "only-if-cached")
		resp, err := tr.RoundTrip(r)
		if err != nil {
			return 0, err
		}
		resp.Body.Close()
		return resp.StatusCode, nil
	}
	if status, err := get("https", ca.member("edge-b")); status != 200 {
		t.Errorf("a member is answered %d, %v", status, err)
	}
	for _, tc := range []struct {
		scheme string
		cert   *ClusterTLS
		reason string
	}{
		{"http", nil, "not_tls"}, {"https", nil, "no_certificate"}, {"https", other.member("edge-b"), "unknown_authority"},
	} {
		before := nodes[0].refusals(t, tc.reason)
		if status, err := get(tc.scheme, tc.cert); err == nil && status == 200 {
			t.Errorf("%s: it is answered", tc.reason)
		}
		if n := nodes[0].refusals(t, tc.reason) - before; n != 1 {
			t.Errorf("%s is counted %d times", tc.reason, n)
		}
	}

	// A member in clear is one, and gets nothing.
	plain := testConfig("edge-c", o.URL)
	plain.Cluster.Join = []string{nodes[0].Addrs().Gossip}
	c := startNode(t, plain)
	before := nodes[0].refusals(t, "not_tls")
	eventually(t, "c is refused", func() bool { return nodes[0].refusals(t, "not_tls") > before })
	c.get(t, "/b").want(t, 200, "/b", "detail=origin")
	if s := nodes[0].gossip.Stats(); s.Members["alive"] != 3 {
		t.Errorf("members %v", s.Members)
	}
	c.Close()

	// Certificates of another authority are taken over while the nodes run.
	for step, tc := range []func(i int) *ClusterTLS{
		func(i int) *ClusterTLS {
			t := ca.member(cfgs[i].Name)
			t.CA = append(append([]byte{}, ca.pem...), other.pem...)
			return t
		},
		func(i int) *ClusterTLS { return other.member(cfgs[i].Name) },
	} {
		for i, n := range nodes {
			cfgs[i].Cluster.TLS = tc(i)
			if step == 1 && i == 0 {
				cfgs[i].Cluster.TLS.CA = append(append([]byte{}, ca.pem...), other.pem...)
			}
			if err := n.Reload(cfgs[i]); err != nil {
				t.Fatal(err)
			}
		}
	}
	asked("/c")
	if status, err := get("https", other.member("edge-b")); status != 200 {
		t.Errorf("a member with a new certificate is answered %d, %v", status, err)
	}
	wrong := cfgs[0]
	wrong.Cluster.TLS = ca.member("edge-x")
	if err := nodes[0].Reload(wrong); err == nil || !strings.Contains(err.Error(), "cluster.tls.cert_file") || !strings.Contains(err.Error(), `"edge-a"`) {
		t.Errorf("another one's certificate: %v", err)
	}
	wrong.Cluster.TLS = nil
	if err := nodes[0].Reload(wrong); err == nil || !strings.Contains(err.Error(), "cluster.tls: a restart is needed") {
		t.Errorf("no certificate any more: %v", err)
	}
	asked("/d")
}
