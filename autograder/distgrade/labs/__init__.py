"""One folder per lab, one room per exercise; found by folder."""
