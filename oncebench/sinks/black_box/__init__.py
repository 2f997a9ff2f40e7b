"""Black box: a user's own sink, which `oncebench certify` tests from outside."""
