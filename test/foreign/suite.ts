/** What the runner knows of a suite: where it comes from, how noria replaces its proxy, and what must pass. */

/** A source distribution on PyPI. */
export interface Sdist {
  readonly registry: 'pypi';
  readonly package: string;
  readonly version: string;
}

/** A source archive of a Debian release. The archive of a stable release does not change. */
export interface DebianSource {
  readonly registry: 'debian';
  readonly package: string;
  readonly release: string;
  /** The file with the tests; the package may have more files. */
  readonly archive: string;
  readonly version: string;
}

/**
 * A package of Go's standard library, taken with its tests from the installed Go. Edits apply to copies of its files.
 */
export interface GoPackage {
  readonly registry: 'go';
  readonly package: string;
}

export type Source = Sdist | DebianSource | GoPackage;

/** A change to a file of the suite. Preparing the suite fails if the file does not contain `from`. */
export interface Edit {
  readonly file: string;
  readonly from: string;
  readonly to: string;
}

/** The paths that a suite needs. */
export interface Place {
  /** The unpacked suite. */
  readonly folder: string;
  /** The Python interpreter with the packages of `python/requirements.txt`. */
  readonly python: string;
  /** The `node_modules` with the packages of `node/package.json`. */
  readonly modules: string;
  /** The file for the results, in the format of the suite's `report`. */
  readonly results: string;
}

export interface Suite {
  readonly name: string;
  readonly source: Source;
  /** Other suites whose files this one needs. They are copied first. */
  readonly support?: readonly { readonly source: Source; readonly folder: string }[];
  readonly edits?: readonly Edit[];
  /** Files of this folder to copy into the suite: from `test/foreign/FROM` to `TO`. */
  readonly copies?: readonly (readonly [from: string, to: string])[];
  /** The YAML of noria's listeners, one per line. */
  readonly listeners: (place: Place) => readonly string[];
  /** Whether each member connects from its own address; default true. */
  readonly ownExits?: boolean;
  readonly command: (place: Place) => readonly [string, ...string[]];
  readonly environment?: (place: Place) => Readonly<Record<string, string>>;
  readonly report: 'junit' | 'go';
  /** The number of tests that passed when this row was written. The run fails if fewer pass. */
  readonly floor: number;
  /** The minimum number of connections that noria must have served: a suite that bypasses noria proves nothing. */
  readonly servedAtLeast: number;
  /** The tests that fail, and why. Several tests may share a reason. */
  readonly known?: readonly KnownFailure[];
}

export interface KnownFailure {
  readonly tests: RegExp;
  readonly reason: string;
}

export interface TestResult {
  readonly name: string;
  readonly outcome: 'passed' | 'failed' | 'skipped';
  readonly message: string;
}

/** The result of one run of a suite. */
export interface SuiteResult {
  readonly tests: readonly TestResult[];
  /** The number of tunnels and forwarded requests through noria. */
  readonly served: number;
  /** The end of what the suite printed. */
  readonly output: string;
}
