package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// before is the commit whose programs are upgraded from: the last one before
// there were containers, permissions and a role for migrations. A clone need not
// have its history, so what its programs are built from is kept in beforeSource:
//
//	git archive 486635d4 -- go.work go.work.sum db pkg services tests/go.mod tests/go.sum \
//	  ':!*_test.go' ':!**/testdata/**' ':!*.md' | gzip -9n
const (
	before       = "486635d4"
	beforeSource = "tests/containers/testdata/before.tar.gz"
)

// upgrade starts the programs of an earlier commit on NATS without permissions,
// and moves to the present ones while people use the site.
func (t *trial) upgrade(ctx context.Context) error {
	t.remove()
	t.project += "-upgrade"
	if err := t.buildBefore(ctx); err != nil {
		return err
	}
	t.with("CCNQ_TAG=before")
	t.overlays = []string{"tests/containers/compose.before.yaml"}
	if _, err := t.compose(ctx, "up", "-d", "--scale", "edge=2"); err != nil {
		return err
	}
	if err := t.allHealthy(ctx); err != nil {
		return err
	}
	if err := until(ctx, "limits hold", func() (bool, error) { return t.clients.limitsHold(ctx), nil }); err != nil {
		return err
	}
	t.counted = 0
	t.clients.flood(ctx, 6, 10, 4000, 64)
	if _, err := t.balance(ctx); err != nil {
		return err
	}
	const blocks = "SELECT string_agg(ip || blocked_until, ',' ORDER BY ip) FROM queue.ip_block"
	had, err := t.sql(ctx, blocks)
	if err != nil {
		return err
	}
	if had == "" {
		return errors.New("nobody was blocked before")
	}
	counted := t.counted

	// The programs first, NATS last: they work with and without permissions.
	t.with("CCNQ_TAG=latest")
	programs := fault{
		name:    "programs upgraded from " + before,
		breakIt: func(context.Context) error { return nil },
		mend: func(ctx context.Context) error {
			if _, err := t.compose(ctx, "up", "--no-deps", "migrate"); err != nil {
				return err
			}
			for _, service := range []string{"queue-coordinator", "denylist", "edge"} {
				if err := t.replaceAll(ctx, service); err != nil {
					return err
				}
			}
			return nil
		},
	}
	permissions := fault{
		name: "NATS given permissions by a restart", failsOpen: true,
		breakIt: func(context.Context) error { return nil },
		mend: func(ctx context.Context) error {
			t.overlays = nil
			if _, err := t.compose(ctx, "up", "-d", "--no-deps", "--force-recreate", "nats"); err != nil {
				return err
			}
			return t.allHealthy(ctx)
		},
	}
	for _, f := range []fault{programs, permissions} {
		if err := t.suffer(ctx, f); err != nil {
			return err
		}
	}
	has, err := t.sql(ctx, "WITH before AS (SELECT unnest(string_to_array('"+had+"', ',')) AS b) SELECT count(*) FROM before WHERE NOT EXISTS (SELECT FROM queue.ip_block WHERE starts_with(b, ip))")
	if err != nil {
		return err
	}
	t.note("upgrade: blocks lost", has+" of "+fmt.Sprint(strings.Count(had, ",")+1), "0", has == "0")
	t.note("upgrade: denials counted before that are still there", fmt.Sprint(min(counted, t.counted)), fmt.Sprint(counted), t.counted >= counted)
	out, err := t.steal(ctx, "edge", "$KV.CCNQ_BLOCKS.mark")
	t.note("upgrade: permissions are in force at the end", fmt.Sprint(out == ""), "true", err == nil && out == "")
	return nil
}

// buildBefore makes the images of the earlier commit. Its programs know no
// command health, so their images get the helper for it, and no cache.
func (t *trial) buildBefore(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "ccnq-before-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if out, err := exec.CommandContext(ctx, "tar", "-xzf", filepath.Join(t.root, beforeSource), "-C", dir).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", beforeSource, err, out)
	}
	empty, err := os.MkdirTemp("", "ccnq-empty-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(empty)
	for _, service := range []struct{ name, admin string }{
		{"edge", "127.0.0.1:9180"}, {"queue-coordinator", "127.0.0.1:9181"}, {"denylist", "127.0.0.1:9182"},
	} {
		bare := "ccnq-test/" + service.name + ":bare"
		if _, err := t.run(ctx, "build", "-q", "-f", "deploy/Dockerfile", "--target", service.name, "-t", bare, dir); err != nil {
			return err
		}
		dockerfile := fmt.Sprintf("FROM %s\nENV CCNQ_CACHE_DIR=\nCOPY --from=%s /helper /helper\nHEALTHCHECK --interval=3s --start-period=20s CMD [\"/helper\", \"ready\", %q]\n",
			bare, helperImage, service.admin)
		if err := os.WriteFile(empty+"/Dockerfile", []byte(dockerfile), 0o600); err != nil {
			return err
		}
		if _, err := t.run(ctx, "build", "-q", "-t", "ccnq-test/"+service.name+":before", empty); err != nil {
			return err
		}
	}
	for _, same := range []string{"ccnq", "init", "front"} {
		if _, err := t.run(ctx, "tag", "ccnq-test/"+same+":latest", "ccnq-test/"+same+":before"); err != nil {
			return err
		}
	}
	return nil
}
