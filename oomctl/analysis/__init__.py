"""Questions put to the evidence: state at a moment, the books, curves, steps, holes, ownership."""
