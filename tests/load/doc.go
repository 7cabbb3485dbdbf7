// Command load measures the gate against what it is compared with, and prints
// one table:
//
//	go run ./tests/load [-row NAME] [-quick]
//	go run ./tests/load -soak 5m
//
// CCNQ_TEST_DATABASE_URL must name a Postgres on this machine whose role may
// create schemas; `make bench` starts one. Everything else the program builds
// and starts itself: edges are the real command, in processes of their own.
//
// # How it measures
//
// The two things that a row compares run in the same minute: in turn, in
// several rounds, and the ratio is the median of the rounds' ratios. What
// disturbs the machine disturbs both. CPU time is that of the measured process
// alone; origin and clients are in this one.
//
// The exit code says whether everything could be measured, not whether it was
// fast enough. Nothing of this is a test, but the soak: it churns through a cache
// far over its budget for minutes, and fails on a wrong byte or a file that grows.
package main
