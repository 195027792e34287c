/** What the runner knows of a suite: where it comes from, how noria takes the place of its proxy, and what must pass. */

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
  /** The file that has the tests; the package may have more. */
  readonly archive: string;
  readonly version: string;
}

/** A package of the standard library that the installed Go contains, with its tests. Edits apply to copies of its files. */
export interface GoPackage {
  readonly registry: 'go';
  readonly package: string;
}

export type Source = Sdist | DebianSource | GoPackage;

/** A change to a file of the suite. Preparing fails if the file does not contain `from`. */
export interface Edit {
  readonly file: string;
  readonly from: string;
  readonly to: string;
}

/** Where a suite finds what it needs. */
export interface Place {
  /** The unpacked suite. */
  readonly folder: string;
  /** The Python interpreter with the packages of `python/requirements.txt`. */
  readonly python: string;
  /** The `node_modules` with the packages of `node/package.json`. */
  readonly modules: string;
  /** The file for the results; its format is the suite's `report`. */
  readonly results: string;
}

export interface Suite {
  readonly name: string;
  readonly source: Source;
  /** Suites whose files this one needs, too: they are copied first. */
  readonly support?: readonly { readonly source: Source; readonly folder: string }[];
  readonly edits?: readonly Edit[];
  /** Files of this folder that are copied into the suite: from `test/foreign/FIRST` to `SECOND`. */
  readonly copies?: readonly (readonly [from: string, to: string])[];
  /** The YAML of noria's listeners, one a line. */
  readonly listeners: (place: Place) => readonly string[];
  /** Whether members connect from addresses of their own; default true. */
  readonly ownExits?: boolean;
  readonly command: (place: Place) => readonly [string, ...string[]];
  readonly environment?: (place: Place) => Readonly<Record<string, string>>;
  readonly report: 'junit' | 'go';
  /** Passed tests of the day on which the row was written: fewer fail the run. */
  readonly floor: number;
  /** Connections that noria must have served at least: a suite that goes past noria proves nothing. */
  readonly servedAtLeast: number;
  /** Tests that fail, and why. Several may share a reason. */
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

/** What one run of a suite gave. */
export interface SuiteResult {
  readonly tests: readonly TestResult[];
  /** Tunnels and forwards through noria. */
  readonly served: number;
  /** The end of what the suite printed. */
  readonly output: string;
}
