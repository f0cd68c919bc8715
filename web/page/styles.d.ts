/** Style sheets, imported for their side effect. */
declare module '*.css';
