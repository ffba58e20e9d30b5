// Command manifests holds what ops offers against the tools' own definitions:
// Kubernetes manifests against the API's types (an unknown field, a duplicate
// key, a wrong type or a kind that is not known here is an error that names the
// file and the document), and a compose.yaml against the Compose specification.
// A module of its own, so that those types stay out of edged's.
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/compose-spec/compose-go/v2/cli"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	strict "sigs.k8s.io/yaml"
)

func main() {
	failed := len(os.Args) < 2
	for _, name := range os.Args[1:] {
		var err error
		if filepath.Base(name) == "compose.yaml" {
			err = checkCompose(name)
		} else if b, e := os.ReadFile(name); e != nil {
			err = e
		} else {
			err = checkKubernetes(b)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
			failed = true
		}
	}
	if failed {
		os.Exit(1)
	}
}

func checkCompose(name string) error {
	o, err := cli.NewProjectOptions([]string{name}, cli.WithName("edged"), cli.WithoutEnvironmentResolution)
	if err != nil {
		return err
	}
	_, err = o.LoadProject(context.Background())
	return err
}

func checkKubernetes(b []byte) error {
	docs := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(b)))
	for i := 1; ; i++ {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			if i == 1 {
				return errors.New("no document")
			}
			return nil
		}
		if err != nil {
			return err
		}
		var meta metav1.TypeMeta
		if err := strict.Unmarshal(doc, &meta); err != nil {
			return fmt.Errorf("document %d: %w", i, err)
		}
		into := kind(meta)
		if into == nil {
			return fmt.Errorf("document %d: %s %s is not known here: add it to kind in main.go", i, meta.APIVersion, meta.Kind)
		}
		if err := strict.UnmarshalStrict(doc, into); err != nil {
			return fmt.Errorf("document %d, %s: %w", i, meta.Kind, err)
		}
	}
}

func kind(m metav1.TypeMeta) any {
	switch m.APIVersion + " " + m.Kind {
	case "v1 ConfigMap":
		return new(corev1.ConfigMap)
	case "v1 Secret":
		return new(corev1.Secret)
	case "v1 Service":
		return new(corev1.Service)
	case "v1 ServiceAccount":
		return new(corev1.ServiceAccount)
	case "v1 Namespace":
		return new(corev1.Namespace)
	case "apps/v1 StatefulSet":
		return new(appsv1.StatefulSet)
	case "policy/v1 PodDisruptionBudget":
		return new(policyv1.PodDisruptionBudget)
	case "networking.k8s.io/v1 NetworkPolicy":
		return new(networkingv1.NetworkPolicy)
	}
	return nil
}
