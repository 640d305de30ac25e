"""The on-premises function host: the routes that run on Lambda, behind one port, with worker processes."""
