package cli

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ccnq/ccnq/pkg/rules"
)

// errNoMatch makes the program fail without a message of its own.
var errNoMatch = errors.New("no match")

func rulesCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "rules", Short: "Check rulesets and try requests on them"}
	cmd.AddCommand(rulesCheck(), rulesTest())
	return cmd
}

func rulesCheck() *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE...",
		Short: "Report everything that is wrong with rulesets",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, files []string) error {
			var problems []error
			for _, file := range files {
				set, err := rules.Load(file)
				if err != nil {
					problems = append(problems, err)
					continue
				}
				out := cmd.OutOrStdout()
				switch {
				case set.Empty():
					fmt.Fprintf(out, "%s: valid, and matches nothing\n", file)
				default:
					fmt.Fprintf(out, "%s: valid\n", file)
				}
				for _, pattern := range set.Backtracking() {
					fmt.Fprintf(out, "  needs a backtracking engine: %s\n", pattern)
				}
			}
			return errors.Join(problems...)
		},
	}
}

func rulesTest() *cobra.Command {
	var method string
	var headers []string
	cmd := &cobra.Command{
		Use:   "test FILE URL",
		Short: "Say whether a request matches a ruleset; the exit code is 0 if it does, 1 if not",
		Example: `  ccnq rules test queue-rules.json /papers/1.pdf
  ccnq rules test queue-rules.json '/search?q=x' -H 'Cookie: session=1' -X POST`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			set, err := rules.Load(args[0])
			if err != nil {
				return err
			}
			r, err := request(method, args[1], headers)
			if err != nil {
				return err
			}
			if !set.Match(r, rules.OnTimeoutMatch) {
				fmt.Fprintln(cmd.OutOrStdout(), "no match")
				return errNoMatch
			}
			fmt.Fprintln(cmd.OutOrStdout(), "match")
			return nil
		},
	}
	cmd.Flags().StringVarP(&method, "request", "X", http.MethodGet, "method of the request")
	cmd.Flags().StringArrayVarP(&headers, "header", "H", nil, "header line of the request, 'Name: value'; may be repeated")
	return cmd
}

// request makes the request that a server would hand to a handler.
func request(method, target string, headers []string) (*http.Request, error) {
	u, err := url.ParseRequestURI(target)
	if err != nil {
		return nil, fmt.Errorf("%q is neither a URL nor a path: %w", target, err)
	}
	r := &http.Request{Method: method, URL: u, Host: u.Host, Header: http.Header{}, RequestURI: u.RequestURI()}
	for _, line := range headers {
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			return nil, fmt.Errorf("header %q is not 'Name: value'", line)
		}
		if value = strings.TrimSpace(value); strings.EqualFold(name, "Host") {
			r.Host = value
		} else {
			r.Header.Add(name, value)
		}
	}
	return r, nil
}
