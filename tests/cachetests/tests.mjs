// Prints the tests that the suite in a folder runs against a proxy: id, name and kind of each.
import { pathToFileURL } from 'node:url'

const index = await import(pathToFileURL(`${process.argv[2]}/tests/index.mjs`))
const tests = index.default
  .flatMap(suite => suite.tests)
  .filter(test => !test.browser_only)
  .map(({ id, name, kind }) => ({ id, name, kind: kind ?? 'required' }))
console.log(JSON.stringify(tests))
