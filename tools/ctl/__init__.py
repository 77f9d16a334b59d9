"""./polykv ctl: shows and changes the pools and sessions of a running server from a terminal."""
