package admin

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// luminance is the relative luminance of a colour (WCAG 2.2).
func luminance(t *testing.T, hex string) float64 {
	t.Helper()
	var l float64
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		v, err := strconv.ParseUint(hex[1+2*i:3+2*i], 16, 8)
		if err != nil {
			t.Fatal(err)
		}
		c := float64(v) / 255
		if c <= 0.04045 {
			c /= 12.92
		} else {
			c = math.Pow((c+0.055)/1.055, 2.4)
		}
		l += weight * c
	}
	return l
}

// Text has 4.5 to 1 (WCAG 2.2, 1.4.3) and what is drawn 3 to 1 (1.4.11), in
// both schemes, on every background that it stands on.
func TestPage_contrast(t *testing.T) {
	css, err := web.ReadFile("web/style.css")
	if err != nil {
		t.Fatal(err)
	}
	schemes := regexp.MustCompile(`(?s):root \{(.*?)\}`).FindAllStringSubmatch(string(css), -1)
	if len(schemes) != 2 {
		t.Fatalf("%d schemes, want light and dark", len(schemes))
	}
	for i, name := range []string{"light", "dark"} {
		colour := map[string]string{}
		for _, m := range regexp.MustCompile(`--(\w+): (#[0-9a-f]{6})`).FindAllStringSubmatch(schemes[i][1], -1) {
			colour[m[1]] = m[2]
		}
		check := func(fore, back string, want float64) {
			t.Run(fmt.Sprintf("%s/%s on %s", name, fore, back), func(t *testing.T) {
				if colour[fore] == "" || colour[back] == "" {
					t.Fatal("there is no such colour")
				}
				a, b := luminance(t, colour[fore]), luminance(t, colour[back])
				if got := (max(a, b) + 0.05) / (min(a, b) + 0.05); got < want {
					t.Errorf("contrast %.2f, want %.1f", got, want)
				}
			})
		}
		for _, back := range []string{"back", "card"} {
			for _, fore := range strings.Fields("ink soft good warn bad accent") {
				check(fore, back, 4.5)
			}
			for _, fore := range strings.Fields("s1 s2 s3 s4") {
				check(fore, back, 3)
			}
		}
		// Text on the button and on the ring.
		for _, back := range strings.Fields("accent good warn bad") {
			check("card", back, 4.5)
		}
	}
}

// Every control has a name, every section a heading or a label, and only what
// is said rarely is said aloud.
func TestPage_structure(t *testing.T) {
	b, err := web.ReadFile("web/index.html")
	if err != nil {
		t.Fatal(err)
	}
	page := string(b)
	for _, m := range regexp.MustCompile(`<(?:input|select|textarea) id="(\w+)"`).FindAllStringSubmatch(page, -1) {
		if !strings.Contains(page, `<label for="`+m[1]+`">`) {
			t.Errorf("%s has no label", m[1])
		}
	}
	for _, m := range regexp.MustCompile(`<(?:section|nav|article)[^>]*>`).FindAllString(page, -1) {
		if !strings.Contains(m, "aria-label") {
			t.Errorf("%s has no name", m)
		}
	}
	for _, m := range regexp.MustCompile(`aria-labelledby="([^"]+)"`).FindAllStringSubmatch(page, -1) {
		if !strings.Contains(page, `id="`+m[1]+`"`) {
			t.Errorf("nothing has the id %s", m[1])
		}
	}
	for _, m := range regexp.MustCompile(`href="#([^"]+)"`).FindAllStringSubmatch(page, -1) {
		if !strings.Contains(page, `id="`+m[1]+`"`) {
			t.Errorf("a link goes to #%s, which is not there", m[1])
		}
	}
	if n := strings.Count(page, `role="status"`); n != 2 || strings.Contains(page, "aria-live") {
		t.Errorf("%d places speak, want the state of the cluster and the answer of explain", n)
	}
	for _, landmark := range []string{"<header>", "<nav ", "<main ", "<footer>", `class="skip" href="#main"`, `<html lang="en">`} {
		if !strings.Contains(page, landmark) {
			t.Errorf("there is no %s", landmark)
		}
	}
}
