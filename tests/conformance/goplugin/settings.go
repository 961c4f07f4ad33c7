package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	k8sconfig "github.com/flyteorg/flyte/flyteplugins/go/tasks/pluginmachinery/flytek8s/config"
	"github.com/flyteorg/flyte/flytestdlib/config"
	"github.com/flyteorg/flyte/flytestdlib/config/viper"
)

// Settings keeps what propeller's own loader made of each `plugins.k8s` section seen so far.
type Settings struct {
	folder string
	loaded map[string]loadedSettings
}

type loadedSettings struct {
	config *k8sconfig.K8sPluginConfig
	err    error
}

func newSettings() (*Settings, error) {
	folder, err := os.MkdirTemp("", "goplugin-")
	return &Settings{folder: folder, loaded: map[string]loadedSettings{}}, err
}

func (s *Settings) forget() { _ = os.RemoveAll(s.folder) }

// use makes the section the one in force, in place of any earlier one.
func (s *Settings) use(ctx context.Context, section map[string]any) error {
	text, err := json.Marshal(section)
	if err != nil {
		return err
	}
	found, known := s.loaded[string(text)]
	if !known {
		found.config, found.err = s.load(ctx, section)
		s.loaded[string(text)] = found
	}
	if found.err != nil {
		return found.err
	}
	return k8sconfig.K8sPluginConfigSection.SetConfig(found.config)
}

// defaults are taken before anything is loaded; the loader writes over copies of them.
var defaults, defaultsError = config.DeepCopyConfig(k8sconfig.K8sPluginConfigSection.GetConfig())

func (s *Settings) load(ctx context.Context, section map[string]any) (*k8sconfig.K8sPluginConfig, error) {
	if defaultsError != nil {
		return nil, defaultsError
	}
	fresh, err := config.DeepCopyConfig(defaults)
	if err != nil {
		return nil, err
	}
	if err := k8sconfig.K8sPluginConfigSection.SetConfig(fresh); err != nil {
		return nil, err
	}
	if len(section) > 0 {
		if err := s.read(ctx, section); err != nil {
			return nil, err
		}
	}
	return k8sconfig.GetK8sPluginConfig(), nil
}

// read goes through a file, as propeller does: its loader lower-cases keys, and is strict.
func (s *Settings) read(ctx context.Context, section map[string]any) error {
	text, err := json.Marshal(map[string]any{"plugins": map[string]any{"k8s": section}})
	if err != nil {
		return err
	}
	path := filepath.Join(s.folder, fmt.Sprintf("%d.yaml", len(s.loaded)))
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return err
	}
	// The loader goes on watching a file until it is removed.
	defer os.Remove(path)
	return viper.NewAccessor(config.Options{StrictMode: true, SearchPaths: []string{path}}).UpdateConfig(ctx)
}
