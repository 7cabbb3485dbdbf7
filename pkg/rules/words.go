package rules

import (
	"regexp/syntax"
	"strings"
	"unicode/utf8"
)

// maxWords is the greatest number of strings that a pattern is expanded to.
const maxWords = 128

// words is a pattern that stands for a few strings, such as
// \.(css|js|png)$: comparing them is several times faster than running the
// expression.
type words struct {
	words    []string
	fromHead bool // begins with ^
	toTail   bool // ends with $
}

func (p *words) match(value string) bool {
	switch {
	case p.fromHead && p.toTail:
		for _, w := range p.words {
			if value == w {
				return true
			}
		}
	case p.fromHead:
		for _, w := range p.words {
			if strings.HasPrefix(value, w) {
				return true
			}
		}
	case p.toTail:
		for _, w := range p.words {
			if strings.HasSuffix(value, w) {
				return true
			}
		}
	default:
		for _, w := range p.words {
			if strings.Contains(value, w) {
				return true
			}
		}
	}
	return false
}

// compileWords expands an expression to the strings it stands for. It is false
// if the expression is of another kind or stands for more than maxWords.
//
// Comparing bytes gives the same answer as the expression, which reads
// characters, also where the value is not valid UTF-8: the words are valid, so
// they can only begin where a character begins. U+FFFD is left out because an
// expression takes any invalid byte for it.
func compileWords(expr string) (*words, bool) {
	re, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return nil, false
	}
	subs := []*syntax.Regexp{re}
	if re.Op == syntax.OpConcat {
		subs = re.Sub
	}
	p := &words{}
	if len(subs) > 0 && subs[0].Op == syntax.OpBeginText {
		p.fromHead, subs = true, subs[1:]
	}
	if n := len(subs); n > 0 && subs[n-1].Op == syntax.OpEndText {
		p.toTail, subs = true, subs[:n-1]
	}
	found, ok := expandConcat(subs)
	p.words = found
	return p, ok
}

// expand returns the strings that re stands for, at most maxWords.
func expand(re *syntax.Regexp) ([]string, bool) {
	switch re.Op {
	case syntax.OpEmptyMatch:
		return []string{""}, true
	case syntax.OpLiteral:
		if re.Flags&syntax.FoldCase != 0 {
			return nil, false
		}
		for _, r := range re.Rune {
			if r == utf8.RuneError {
				return nil, false
			}
		}
		return []string{string(re.Rune)}, true
	case syntax.OpCharClass:
		return expandClass(re.Rune)
	case syntax.OpCapture:
		return expand(re.Sub[0])
	case syntax.OpQuest:
		found, ok := expand(re.Sub[0])
		return append(found, ""), ok && len(found) < maxWords
	case syntax.OpConcat:
		return expandConcat(re.Sub)
	case syntax.OpAlternate:
		var all []string
		for _, sub := range re.Sub {
			found, ok := expand(sub)
			if !ok || len(all)+len(found) > maxWords {
				return nil, false
			}
			all = append(all, found...)
		}
		return all, true
	default:
		return nil, false
	}
}

func expandConcat(subs []*syntax.Regexp) ([]string, bool) {
	all := []string{""}
	for _, sub := range subs {
		tails, ok := expand(sub)
		if !ok || len(all)*len(tails) > maxWords {
			return nil, false
		}
		longer := make([]string, 0, len(all)*len(tails))
		for _, head := range all {
			for _, tail := range tails {
				longer = append(longer, head+tail)
			}
		}
		all = longer
	}
	return all, true
}

// expandClass lists the characters of a class, given as pairs of bounds.
func expandClass(bounds []rune) ([]string, bool) {
	var all []string
	for i := 0; i+1 < len(bounds); i += 2 {
		lo, hi := bounds[i], bounds[i+1]
		if int(hi-lo)+1+len(all) > maxWords || lo <= utf8.RuneError && utf8.RuneError <= hi {
			return nil, false
		}
		for r := lo; r <= hi; r++ {
			all = append(all, string(r))
		}
	}
	return all, true
}
