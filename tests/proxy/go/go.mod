module tierstate.test/clients

go 1.24
