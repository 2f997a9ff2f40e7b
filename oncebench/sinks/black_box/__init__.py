"""Black box: a function of the user that `oncebench certify` tests as a sink."""
